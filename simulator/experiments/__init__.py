"""Experiments of published papers: definitions, parallel runs, and tables with verdicts."""
