"""Benchmark tables where the true answer is known, one file each; base.py is the contract."""
