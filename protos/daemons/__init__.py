"""daemons."""
