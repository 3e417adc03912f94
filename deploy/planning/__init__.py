"""What is to be done on each host, decided without connections: facts in, steps out."""
