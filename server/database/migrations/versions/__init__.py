"""The migrations of the database schema: one file for each version."""
