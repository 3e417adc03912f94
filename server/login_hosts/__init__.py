"""Users on login hosts: their requests arrive over TLS, through a login agent.

A login agent is a daemon on a login host, which forwards the requests of users.
`login_host_listener` accepts the agents. `agent_admission` decides which agents are accepted, and
checks the users that they name. The agent itself is `pliant.client.login_agent`.
"""
