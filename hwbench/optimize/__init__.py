"""The best network that is fast enough: costs, limits, objectives, strategies, the loop and its result.

It must not know how anything is measured.
"""

KINDS = {"objective": "hwbench.optimize.objective", "strategy": "hwbench.optimize.strategy"}
