"""The inputs of a simulation: workloads, logs, models, costs, failures and settings."""
