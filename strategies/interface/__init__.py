"""What a strategy must provide, its options, and the check that every plan has to pass."""
