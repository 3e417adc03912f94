"""Make the job of a ``submit`` request for `jobsub`, `pliant run` and the Python client.

`directives` reads the options in a job script, `build_job` makes the job of the options,
`option_checks` and `file_checks` find errors before the server is asked, and `export_option`
selects the environment. The server's side is
`pliant.server.user_requests.submission`.
"""
