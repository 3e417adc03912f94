"""transitions."""
