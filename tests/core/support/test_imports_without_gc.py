from __future__ import annotations

import gc

import pytest

from pliant.core.support.imports_without_gc import imports_without_gc


def fail_to_import() -> None:
    with imports_without_gc():
        assert not gc.isenabled()
        raise ImportError


@pytest.mark.parametrize("enabled", [True, False])
def test_collection_is_afterwards_as_it_was_also_when_an_import_fails(enabled: bool) -> None:
    if not enabled:
        gc.disable()
    try:
        with pytest.raises(ImportError):
            fail_to_import()
        assert gc.isenabled() == enabled
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.enable()
