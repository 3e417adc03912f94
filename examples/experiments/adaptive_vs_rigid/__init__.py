"""Experiments of published papers, repeated with real jobs: ``python -m`` this package.

See docs/experiments.md.
"""
