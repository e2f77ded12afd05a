"""One file per objective: what a strategy is told of accuracy and limited costs.

It must not know spaces or devices.
"""
