"""One file per way to learn numbers from rows of numbers.

It must not know what the rows are about.
"""
