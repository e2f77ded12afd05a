"""Numbers being taken: what to measure, how long, in which order, and the verbs that do it.

It must not know predictors.
"""
