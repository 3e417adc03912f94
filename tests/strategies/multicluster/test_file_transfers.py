"""Transfer times of input files, and catalogues that make no sense."""

from __future__ import annotations

import pytest

from pliant.strategies.multicluster.file_transfers import FileCatalogue, FilesError

CATALOGUE = FileCatalogue(
    ("a", "b", "c"),
    {"mesh": 100.0, "particles": 10.0},
    {"mesh": ["a", "b"], "particles": ["a"]},
    {("a", "c"): 5.0, ("b", "c"): 20.0, ("a", "b"): 2.0},
)


def test_each_missing_file_comes_from_the_fastest_replica() -> None:
    assert CATALOGUE.seconds(["mesh", "particles"], "a") == 0
    assert CATALOGUE.seconds(["mesh", "particles"], "b") == 5
    assert CATALOGUE.seconds(["mesh", "particles"], "c") == 100 / 20 + 10 / 5
    assert CATALOGUE.transfers([["mesh"], []]) == [
        {"a": 0.0, "b": 0.0, "c": 5.0},
        {"a": 0.0, "b": 0.0, "c": 0.0},
    ]


def test_a_file_that_no_link_reaches_never_arrives() -> None:
    lonely = FileCatalogue(("a", "b"), {"mesh": 1.0}, {"mesh": ["a"]})
    assert lonely.seconds(["mesh"], "b") == float("inf")


def test_unknown_names_are_named() -> None:
    with pytest.raises(FilesError, match=r"no cluster 'z'; there are: a, b"):
        FileCatalogue(("a", "b"), {"mesh": 1.0}, {"mesh": ["z"]})
    with pytest.raises(FilesError, match=r"file mesh has replicas but no size"):
        FileCatalogue(("a",), {}, {"mesh": ["a"]})
    with pytest.raises(FilesError, match=r"bandwidth from a to b: 0 "):
        FileCatalogue(("a", "b"), bandwidth={("a", "b"): 0.0})
    with pytest.raises(FilesError, match=r"no input file 'grid'; there are: mesh, particles"):
        CATALOGUE.seconds(["grid"], "a")
