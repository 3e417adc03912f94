"""Map the top-level folders into the ``pliant`` namespace (see pyproject.toml for the rest)."""

from setuptools import find_packages, setup

PARTS = (
    "faults",
    "protos",
    "core",
    "strategies",
    "server",
    "nodectl",
    "appkit",
    "client",
    "simulator",
    "deploy",
    "examples",
)

setup(
    package_dir={f"pliant.{part}": part for part in PARTS},
    packages=[
        name
        for part in PARTS
        for name in (f"pliant.{part}", *(f"pliant.{part}.{sub}" for sub in find_packages(part)))
    ],
)
