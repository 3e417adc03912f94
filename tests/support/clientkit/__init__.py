"""Fakes of the daemons that users talk to, for tests of the commands and the Python client."""
