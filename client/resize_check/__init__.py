"""``pliant check``: runs a program with and without resizes and compares the results.

`runs` runs the program, `compare` finds differences and suggests remedies.
"""
