"""Carry out plans on many hosts at once, and report on each of them."""
