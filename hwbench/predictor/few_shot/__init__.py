"""A new device from a few measurements and what other devices did.

It must not know ops.
"""
