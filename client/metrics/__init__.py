"""The command ``pliant metrics``: metrics of a cluster for Prometheus."""
