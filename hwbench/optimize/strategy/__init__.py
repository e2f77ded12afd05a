"""One file per search strategy: ask and tell over genes.

It must not know spaces, networks or latencies.
"""
