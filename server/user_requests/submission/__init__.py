"""Check a job that a user submits, give it a number, and store it before it is acknowledged.

Start reading at `submissions`. `submission_schema` has the fields of the request and checks them.
The longer checks are in `condition_checks` (what a job waits for) and in `requirement_checks` (what
a job needs of the cluster).
"""
