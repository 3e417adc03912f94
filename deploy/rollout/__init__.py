"""Carry out plans on many hosts at once, and report on each of them.

`deployment` decides the order of the hosts, `host_run` is one host, `agent_session` its connection.
"""
