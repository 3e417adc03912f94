"""One simulation: the loop around the core, the simulated jobs, and the result.

`simulate` is the entry. `engine` is the loop, `event_queue` has the clock and future events,
`simulated_jobs` executes the core's commands, and `metrics` gathers the results. Imports go one
way: engine, simulated_jobs, suspending and timers, evolving and progress, event_queue.
"""
