"""Operators, one file each; base.py is the contract."""
