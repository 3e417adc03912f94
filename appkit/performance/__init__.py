"""Measurements of the program, the expected cost of a resize and the gain of a growth."""
