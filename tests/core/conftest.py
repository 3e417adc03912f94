from __future__ import annotations

import pytest

from corekit.rig import Rig


@pytest.fixture
def rig() -> Rig:
    """One malleable job on all eight processors of two nodes."""
    rig = Rig({"n1": 4, "n2": 4})
    rig.run(1, "1-8")
    rig.sent.clear()
    return rig
