"""The live page: ``pliant dashboard`` (see docs/dashboard.md)."""
