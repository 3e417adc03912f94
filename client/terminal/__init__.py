"""Input and output of commands: numbers, times, tables, timelines, pictures, Ctrl-C."""
