"""What every room stands on: errors, registry, files, Parquet, statistics, genes, processes.

It must not know a domain noun (op, device, latency table, search): each room declares its own tables and kinds of plug-ins.
"""

KINDS = {"executor": "hwbench.core.executor"}
