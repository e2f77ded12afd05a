"""Inference runtimes, one file each, and what the host makes for them (`convert/`).

A runtime must not know anything of hwbench but `base.py`: its file is sent to devices with Python 3.9 and numpy.
"""

KINDS = {"runtime": "hwbench.runtime"}
