"""Lists of jobs: which jobs a command asks for, and which columns it shows."""
