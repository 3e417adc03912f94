"""What an experiment is: definitions as data, and how they are read from YAML."""
