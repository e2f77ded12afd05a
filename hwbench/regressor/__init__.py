"""Regressors: one file each."""
