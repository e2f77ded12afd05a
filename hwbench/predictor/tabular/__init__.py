"""Predictors from anyone's own table: its columns as numbers, the fit, and what each operator costs.

It must not know our own lookup tables.
"""
