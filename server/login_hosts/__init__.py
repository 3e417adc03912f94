"""Users on login hosts: their requests arrive over TLS, through a login agent."""
