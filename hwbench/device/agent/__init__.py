"""What runs on the device itself: the measuring worker and what it reads of its machine.

It must not know anything of hwbench but itself and the runtimes: Python 3.9, the standard library and numpy.
"""
