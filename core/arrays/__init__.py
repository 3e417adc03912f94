"""Job arrays: the numbers of their tasks, and what has become of the tasks so far.

This package knows nothing of jobs, so that the model of jobs can build on it.
"""
