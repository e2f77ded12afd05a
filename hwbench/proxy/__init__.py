"""Stand-ins for accuracy, one file each; base.py is the contract."""
