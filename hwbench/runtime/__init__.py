"""Inference runtimes, one file each."""
