"""Target machines: their files, peaks and health, how a worker is started there and what runs there.

It must not know ops or tables.
"""

KINDS = {"transport": "hwbench.device.transport"}
RENAMED_KINDS = {"reach": "transport"}
