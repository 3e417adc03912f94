"""joining."""
