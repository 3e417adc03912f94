"""The choice of wheels for a host."""

from __future__ import annotations

import pytest

from pliant.deploy.planning.release import Platform, ReleaseError, Wheel, choose_release

HOST = Platform((3, 11), "x86_64", (2, 36))


def wheels(*files: str) -> list[Wheel]:
    return [Wheel(file, f"digest of {file}", 1) for file in files]


@pytest.mark.parametrize(
    ("tag", "fits"),
    [
        ("py3-none-any", True),
        ("py2.py3-none-any", True),
        ("py2-none-any", False),
        ("cp311-cp311-manylinux_2_28_x86_64", True),
        ("cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64", True),
        ("cp311-cp311-manylinux1_x86_64", True),
        ("cp311-cp311-linux_x86_64", True),
        ("cp311-cp311-manylinux_2_39_x86_64", False),
        ("cp311-cp311-manylinux_2_28_aarch64", False),
        ("cp311-cp311-musllinux_1_2_x86_64", False),
        ("cp312-cp312-manylinux_2_28_x86_64", False),
        ("cp310-cp310-manylinux_2_28_x86_64", False),
        ("cp36-abi3-manylinux2010_x86_64", True),
        ("cp312-abi3-manylinux2010_x86_64", False),
        ("py3-none-manylinux_2_28_x86_64", True),
    ],
)
def test_a_wheel_fits_a_host(tag: str, fits: bool) -> None:
    (wheel,) = wheels(f"numpy-2.4.6-{tag}.whl")
    assert wheel.fits(HOST) is fits


def test_a_host_without_glibc_takes_pure_wheels_only() -> None:
    host = Platform.of((3, 11, 0), "x86_64", "")
    pure, other = wheels("a-1-py3-none-any.whl", "a-1-cp311-cp311-manylinux1_x86_64.whl")
    assert (pure.fits(host), other.fits(host)) == (True, False)


def test_each_host_gets_the_wheels_of_its_python_and_the_same_name_for_the_same_wheels() -> None:
    found = wheels(
        "pliant-1.0-py3-none-any.whl",
        "numpy-2.4-cp311-cp311-manylinux_2_28_x86_64.whl",
        "numpy-2.4-cp312-cp312-manylinux_2_28_x86_64.whl",
    )
    one = choose_release(found, HOST)
    assert list(one.wheels) == [found[1].file, found[0].file]
    assert one == choose_release(found[::-1], HOST)
    other = choose_release(found, Platform((3, 12), "x86_64", (2, 36)))
    assert other.environment != one.environment
    assert one.environment.startswith("env-1.0-")


def test_hosts_with_another_python_may_need_another_version() -> None:
    found = wheels(
        "pliant-1.0-py3-none-any.whl",
        "numpy-2.4-cp311-cp311-manylinux_2_28_x86_64.whl",
        "numpy-2.5-cp312-cp312-manylinux_2_28_x86_64.whl",
    )
    for minor, file in ((11, found[1].file), (12, found[2].file)):
        assert file in choose_release(found, Platform((3, minor), "x86_64", (2, 36))).wheels


@pytest.mark.parametrize(
    ("files", "word"),
    [
        (["numpy-2-py3-none-any.whl"], "pliant"),
        (["pliant-1-py3-none-any.whl", "pliant-2-py3-none-any.whl"], "versions 1, 2"),
        (["pliant-1-py3-none-any.whl", "numpy-2-cp39-cp39-linux_x86_64.whl"], "numpy"),
    ],
)
def test_an_incomplete_or_ambiguous_wheelhouse_is_refused(files: list[str], word: str) -> None:
    with pytest.raises(ReleaseError, match=word):
        choose_release(wheels(*files), HOST)


def test_a_wheel_that_another_needs_must_be_there() -> None:
    pliant = Wheel("pliant-1-py3-none-any.whl", "x", 1, {"grpcio"})
    with pytest.raises(ReleaseError, match="grpcio"):
        choose_release([pliant], HOST)
