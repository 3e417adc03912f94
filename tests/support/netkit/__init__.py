"""Networks that lose messages, and peers that break the protocols."""
