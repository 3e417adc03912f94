"""resize."""
