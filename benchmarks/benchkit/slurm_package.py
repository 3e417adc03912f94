"""Debian's Slurm, which some benchmarks compare Pliant with; needs root."""

from __future__ import annotations

import os
import subprocess

from slurmkit import why_missing

_INSTALL = ("apt-get", "install", "-y", "--no-install-recommends", "slurm-wlm", "munge")


def install() -> None:
    """Install Slurm and munge with apt-get if they are missing."""
    if why_missing():
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(_INSTALL, check=True, env=env)


def reason_to_skip() -> str:
    """Return why Slurm cannot run on this machine, and the remedy; empty if it can."""
    reason = why_missing()
    return f"{reason}; as root: {' '.join(_INSTALL)}, or use --install" if reason else ""
