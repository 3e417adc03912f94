"""A root helper for each test that asks for it, and a stand-in for the controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helperkit import ACCOUNT, FakeController, Helper


@pytest.fixture
def helper() -> Iterator[Helper]:
    started = Helper()
    try:
        started.start()
        yield started
    finally:
        started.close()


@pytest.fixture
def controller(helper: Helper) -> Iterator[FakeController]:
    fake = FakeController(helper.run / "shims", ACCOUNT)
    yield fake
    fake.close()
