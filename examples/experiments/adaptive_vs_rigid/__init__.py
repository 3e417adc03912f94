"""The published experiments with real jobs: ``python -m`` this package, see docs/experiments.md."""
