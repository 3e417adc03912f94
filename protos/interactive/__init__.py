"""The connection between ``pliant run`` and a process of its job: address, proof and frames."""
