"""Input and output of commands: arguments, numbers, times, tables, event texts, Ctrl-C.

`output` is what all commands share: parser, exit codes and error lines.
"""
