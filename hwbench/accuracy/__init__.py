"""What a network is worth: stand-ins for accuracy, benchmark tables, and the scorer that asks them.

It must not know latency predictors, lookup tables or devices.
"""

KINDS = {"proxy": "hwbench.accuracy.proxy", "benchmark": "hwbench.accuracy.benchmark"}
