"""What a simulation is made of: workloads, logs, models, costs, failures, settings."""
