"""Users on login hosts: their requests arrive over TLS, through a login agent.

`login_host_listener` accepts the agents, `agent_admission` decides which agents may speak for which
users. The agent itself is `pliant.client.login_agent`.
"""
