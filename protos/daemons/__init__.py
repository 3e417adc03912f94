"""Code that all daemons share: configuration and log files, private folders, unix sockets."""
