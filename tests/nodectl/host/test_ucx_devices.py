"""The devices of an interface, from a copy of what the kernel tells of interfaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.nodectl.host.ucx_devices import ucx_devices


def interface(folder: Path, name: str, flags: int, port: int = 0, *devices: str) -> None:
    (folder / name / "device").mkdir(parents=True)
    (folder / name / "flags").write_text(f"{flags:#x}\n")
    (folder / name / "dev_port").write_text(f"{port}\n")
    for device in devices:
        (folder / name / "device" / "infiniband" / device).mkdir(parents=True)


def test_an_interface_is_its_own_device(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", 0x1003)
    assert ucx_devices("eth0", tmp_path) == "eth0"


def test_a_device_with_direct_memory_access_comes_first(tmp_path: Path) -> None:
    interface(tmp_path, "ib0", 0x1003, 1, "mlx5_0")
    assert ucx_devices("ib0", tmp_path) == "mlx5_0:2,ib0"


@pytest.mark.parametrize("name", ["lo", "none", "", "10.0.0.1"])
def test_ucx_chooses_itself(tmp_path: Path, name: str) -> None:
    interface(tmp_path, "lo", 0x9)
    assert ucx_devices(name, tmp_path) == ""
