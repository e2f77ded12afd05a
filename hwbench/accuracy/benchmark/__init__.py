"""One file per benchmark table: architectures whose accuracy, and latency on devices, others measured.

It must not know searches.
"""
