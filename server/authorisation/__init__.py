"""Decide what a user may do: roles, the role that each operation needs, and who may submit jobs.

Start reading at `access_control`. `roles` reads the roles file, `privacy` lists the values of a job
that all users see, and `user_database` finds names and groups of users. Nothing is read from a
connection here: the requests of users arrive in `pliant.server.user_requests`, and the identity of
nodes and applications is checked in `pliant.server.authentication`.
"""
