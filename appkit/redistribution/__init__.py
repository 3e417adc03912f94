"""redistribution."""
