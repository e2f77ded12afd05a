"""One file per way to start a worker on a device.

It must not know what the worker measures.
"""
