"""Messages to users about events of their jobs, by mail or to a web service."""
