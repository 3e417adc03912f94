"""Input and terminal of an interactive job: the relay between a rank and ``pliant run``."""
