"""Migrations of the database schema (Alembic)."""
