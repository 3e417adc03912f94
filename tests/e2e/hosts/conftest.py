from __future__ import annotations

from collections.abc import Iterator

import pytest

from helperkit import Site


@pytest.fixture
def site() -> Iterator[Site]:
    """Return a server for all users, with one node that has a root helper."""
    made = Site()
    try:
        made.up()
        yield made
    finally:
        made.close()
