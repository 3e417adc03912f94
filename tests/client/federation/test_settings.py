"""The configuration file of a federation."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.client.client_errors import UsageError
from pliant.client.federation.federation_command import main
from pliant.client.federation.settings import load_settings

SITE = "sites:\n  delft: {run_dir: /delft, max_stubs: 4}\n"


def test_a_site_needs_a_folder_and_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text(SITE)
    settings = load_settings(str(file))
    assert settings.sites["delft"].max_stubs == 4
    assert settings.sites["delft"].threshold == 0
    assert main(["--config", str(file), "--check"]) == 0


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "sites"),
        ("sites: {}\n", "at least one"),
        ("sites: {delft: {run_dir: /delft}}\n", "max_stubs"),
        ("sites: {delft: {run_dir: delft, max_stubs: 1}}\n", "absolute"),
        ("sites: {delft: {run_dir: /delft, max_stubs: 0}}\n", "max_stubs"),
        ("sites: {delft: {run_dir: /delft, max_stubs: 1, threshold: -1}}\n", "threshold"),
        ("sites: {'a:b': {run_dir: /delft, max_stubs: 1}}\n", "'a:b'"),
        (SITE + "poll_s: 0\n", "poll_s"),
        (SITE + "pol_s: 1\n", "pol_s"),
        (SITE + "leave_before_s: 90000\n", "leave_before_s"),
        (SITE + "growth: all\n", "growth"),
        (SITE + "run_dir: /delft\n", "grid server itself"),
        ("- 1\n", "federation.yaml"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "federation.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=fault):
        load_settings(str(file))
    assert main(["--config", str(file)]) == 2
