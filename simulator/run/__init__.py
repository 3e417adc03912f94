"""One simulation: the loop around the core, the simulated jobs, and the result.

`simulate` is the entry. `simulation_loop` is the loop, `event_queue` has the clock and future
events, `command_effects` executes the core's commands, and `metrics` gathers the results. Imports
go one way: simulation_loop, command_effects, suspending and timers, evolving and progress,
event_queue.
"""
