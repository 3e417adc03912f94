"""One simulation: the loop around the core, the simulated jobs, and the result.

`simulate` is the entry. `simulation_loop` is the loop, `event_queue` has the clock and future
events, `command_effects` executes the core's commands, and `metrics` gathers the results. A job's
progress is in `job_run`, and in `evolving` if the job has phases.

A module imports only modules of later lines here::

    simulate
    simulation_loop
    command_effects
    suspending, timers, ended_job_record, user_metrics
    evolving, metrics
    job_run, event_queue, simulated_nodes, result
"""
