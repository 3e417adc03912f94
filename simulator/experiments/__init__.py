"""Experiments of published papers: definitions, parallel runs, and tables with verdicts.

`definition` reads the YAML files, `running` runs the simulations, `results` compares them with the
paper by the rules of `verdicts`, and `reporting` writes tables, plots and reports.
"""
