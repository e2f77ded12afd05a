"""Search spaces, one file per family; the contract is in space/base.py."""

FULL_NAMES = True
"""The keys of VARIANTS in these files are the names of spaces, whole."""
