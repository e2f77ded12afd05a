"""One file per stand-in for accuracy.

It must not know searches or latencies.
"""
