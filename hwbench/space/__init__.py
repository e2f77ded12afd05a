"""What can be chosen: genes, how they lower to a workload, canonical form, compiled sums; zoo/ has the spaces.

It must not know latencies, devices or search strategies.
"""

KINDS = {"space": "hwbench.space.zoo"}
