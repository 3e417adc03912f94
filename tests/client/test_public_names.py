"""The names that programs import from ``pliant.client``."""

from __future__ import annotations

import pytest

import pliant.client
from testkit import loaded_modules


@pytest.mark.parametrize("name", pliant.client.__all__)
def test_a_public_name_is_found_and_documented(name: str) -> None:
    found = getattr(pliant.client, name)
    assert found.__name__ == name
    assert found.__doc__
    assert name in dir(pliant.client)


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"'pliant\.client' has no attribute 'Nothing'"):
        pliant.client.Nothing  # noqa: B018


def test_the_package_imports_nothing_before_a_name_is_used() -> None:
    loaded = loaded_modules("import pliant.client")
    assert not {name for name in loaded if name.startswith("pliant.client.")}
    assert "pliant.client.api" not in loaded_modules("from pliant.client import NoServerError")
