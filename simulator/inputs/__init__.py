"""The inputs of a simulation: workloads, logs, models, costs, failures and settings.

`workload` has the jobs, `swf` reads them from a log, `models` makes them, and `workload_options`
adds sizes and contracts from a CSV file. `answer_models` says how programs answer offers.
"""
