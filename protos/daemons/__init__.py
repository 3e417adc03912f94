"""What all daemons do alike: configuration and log files, private folders, unix sockets."""
