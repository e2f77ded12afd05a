"""Evidence: finalists measured, strategies validated, runtimes compared, reports written.

Only the command line may know it.
"""
