"""The simulation itself: the event loop around the core, the simulated jobs, the results.

`engine` is the loop; `simulate` runs it from jobs and settings to a result.
"""
