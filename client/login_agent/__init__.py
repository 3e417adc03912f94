"""The login agent: lets the users of a host without a server use the server of the cluster."""
