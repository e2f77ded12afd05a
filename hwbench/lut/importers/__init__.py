"""Lookup tables that others published, as tables of ours.

It must not know how anything is measured.
"""
