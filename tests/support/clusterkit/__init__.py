"""Clusters of real processes for tests, their programs, and checks of what they leave behind."""
