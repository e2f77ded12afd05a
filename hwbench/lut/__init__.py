"""Numbers at rest: samples, their journal, the tables folded from it, what can be trusted, what changed.

It must not know processes or spaces.
"""
