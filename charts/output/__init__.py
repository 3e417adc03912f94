"""Drawings as files: SVG, and PNG with matplotlib."""
