"""Search spaces, one file per family; the contract is in space/base.py."""
