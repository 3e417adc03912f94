"""``pliant check``: runs a program with and without resizes and compares the results."""
