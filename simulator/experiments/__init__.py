"""Experiments of published papers: data in, runs in parallel, tables with verdicts out."""
