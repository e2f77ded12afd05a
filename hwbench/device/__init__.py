"""Target machines: their files, peaks and health, how a worker is started there and what runs there.

It must not know ops or tables.
"""

KINDS = {"reach": "hwbench.device.transport"}
