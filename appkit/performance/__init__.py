"""What is measured of a program, and what follows from it: cost of a resize, gain of a growth."""
