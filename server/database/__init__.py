"""The job database: tables, migrations, one writer and many readers.

`tables` is the schema, `statements` holds all writes, `reader` all queries. Only the writer thread
(`writer`) writes. No rule about jobs is decided here.
"""
