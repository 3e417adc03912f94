"""The core without daemons: driven by hand, by Hypothesis, or by workloads."""
