"""The job database: tables, migrations, one writer and many readers.

`tables` is the schema, `statements` are all writes, `reader` holds the queries. Only the writer
thread (`writer`) writes. No rule about jobs lives here.
"""
