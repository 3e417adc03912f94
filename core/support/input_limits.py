"""Limits that several processes check: a client before it asks, and the server when it is asked."""

#: Largest number of processors of a job or machine, and largest processor index. A larger number
#: is a typing error, and would make a bit set of megabytes.
MAX_PROCESSORS = 1 << 24
#: Longest run time, and latest deadline from now: ten years.
MAX_DAYS = 3650
MAX_DURATION_S = MAX_DAYS * 86400.0
#: Seconds between two rows in the record of the load of a job.
MIN_LOAD_INTERVAL_S, MAX_LOAD_INTERVAL_S = 0.01, 60.0
#: Linux limits each single argument and environment variable to this, besides the limit of all.
MAX_ARGUMENT_BYTES = 128 * 1024 - 1
#: Characters of a text from a user or program. Longer ones would fill the history.
MAX_TEXT = 1000

#: Bytes of the longest request on the users' socket.
MAX_REQUEST_BYTES = 4 << 20
