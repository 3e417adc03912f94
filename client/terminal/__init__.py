"""What commands read and print: arguments, numbers, times, tables, timelines, pictures, Ctrl-C."""
