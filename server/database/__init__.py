"""The job database: tables, one writer, many readers."""
