"""Measurements of the program, the expected cost of a resize and the gain of a growth.

`timing` measures iterations, and `cost_model` decides whether a growth gains more than it costs.
"""
