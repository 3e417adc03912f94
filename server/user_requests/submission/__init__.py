"""Check a job that a user submits, give it a number, and store it before it is acknowledged.

Start with `submissions`. `submission_schema` has the fields of the request and checks them,
`condition_checks` and `requirement_checks` the longer rules: what a job waits for, and what it
needs of the cluster.
"""
