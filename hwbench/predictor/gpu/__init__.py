"""Operators on a GPU, from its data sheet and what other GPUs did.

It must not know lookup tables.
"""
