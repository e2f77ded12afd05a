"""One file per way from the latencies of ops to the latency of their network.

It must not know devices, cards or spaces.
"""
