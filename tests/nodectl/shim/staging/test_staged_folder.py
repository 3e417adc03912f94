"""The folder of staged files, as the shims of one run share it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator

import pytest

from pliant.nodectl.shim.staging import staged_folder
from pliant.nodectl.shim.staging.staged_folder import (
    STAGE_FOLDER,
    StagedFolder,
    use_staged_folder,
)
from pliant.nodectl.world_folder import StartRequest
from pliant.protos.staging.environment_variables import STAGE_ARCHIVE


@pytest.fixture
def request_of_job() -> Iterator[StartRequest]:
    world = f"{secrets.token_hex(8)}.j1.r1.w0"
    variables = {STAGE_ARCHIVE: "1:0"}
    request = use_staged_folder(
        StartRequest(world, 1, 1, 0, "uni", 1, [(0, 0)], ["true"], variables, "/", "out")
    )
    yield request
    shutil.rmtree(request.stage[STAGE_FOLDER], ignore_errors=True)


def test_a_failed_start_of_the_transfer_names_the_folder_and_holds_nothing(
    request_of_job: StartRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(11, "no more processes")

    monkeypatch.setattr(staged_folder, "_spawn", fail)
    before = os.listdir("/proc/self/fd")
    folder = StagedFolder(request_of_job)
    assert not folder.begin_return()
    assert request_of_job.stage[STAGE_FOLDER] in folder.problem
    assert not folder.begin_return(), "tried once"
    folder.close()
    assert os.listdir("/proc/self/fd") == before
