from __future__ import annotations

import pytest

from pliant.appkit.mpi import blocking_wait as module
from pliant.appkit.mpi.blocking_wait import blocking_waits

pytestmark = pytest.mark.mpi


def switch() -> module.Variable:
    found = module.find(module._SWITCH)
    assert found is not None, "the MPI of the tests is MPICH"
    return found


def test_it_is_switched_on_only_inside() -> None:
    assert switch().get() == 0
    with blocking_waits():
        assert switch().get() == 1
        with blocking_waits():
            assert switch().get() == 1
        assert switch().get() == 1
    assert switch().get() == 0


def test_it_is_switched_off_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), blocking_waits():
        raise ZeroDivisionError
    assert switch().get() == 0


def test_another_mpi_has_no_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SWITCH", b"MPIR_CVAR_THAT_IS_NOT_THERE")
    with blocking_waits():
        assert module.find(module._SWITCH) is None
