"""Faults in the middle of resizes and runs: cases, the cluster they happen on, table of results."""

from faultkit.bed import Bed, Beds
from faultkit.cases import Case, all_cases, ci_cases, ci_run_cases, run_cases
from faultkit.lives import run_life
from faultkit.results import check, missing
from faultkit.run import Result, run_case

__all__ = [
    "Bed",
    "Beds",
    "Case",
    "Result",
    "all_cases",
    "check",
    "ci_cases",
    "ci_run_cases",
    "missing",
    "run_case",
    "run_cases",
    "run_life",
]
