"""The command ``pliant traces``: a trace of OpenTelemetry for the start of each job."""
