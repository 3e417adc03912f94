"""The helper starts only with settings, keys and folders that nobody but root can change."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from helperkit import ALICE, Helper, needs_root
from pliant.protos.identity import keys

pytestmark = [needs_root, pytest.mark.timeout(120)]


@pytest.fixture
def stopped() -> Iterator[Helper]:
    helper = Helper()
    yield helper
    helper.close()


def run(helper: Helper, *options: str) -> subprocess.CompletedProcess[str]:
    command = helper.command(*options)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_right_settings(stopped: Helper) -> None:
    done = run(stopped, "--check")
    assert done.returncode == 0
    assert "node n7 of cluster blue, controller of user 65534" in done.stdout


def _own_key(helper: Helper) -> None:
    os.chown(helper.etc / "order.pub", ALICE, ALICE)


def _open_settings(helper: Helper) -> None:
    (helper.etc / "helper.json").chmod(0o666)


def _open_folder(helper: Helper) -> None:
    helper.etc.chmod(0o777)


def _open_parent(helper: Helper) -> None:
    helper.base.chmod(0o777)


def _link(helper: Helper) -> None:
    (helper.etc / "order.pub").rename(helper.base / "key")
    (helper.etc / "order.pub").symlink_to(helper.base / "key")


def _private_key(helper: Helper) -> None:
    (helper.etc / "order.pub").write_text(keys.format_private_key(helper.key))


def _no_key(helper: Helper) -> None:
    (helper.etc / "order.pub").unlink()


def _run_is_a_link(helper: Helper) -> None:
    (helper.base / "elsewhere").mkdir()
    helper.run.symlink_to(helper.base / "elsewhere")


def _run_is_a_users(helper: Helper) -> None:
    helper.run.mkdir()
    os.chown(helper.run, ALICE, ALICE)


def _damaged_generation(helper: Helper) -> None:
    helper.state.mkdir(mode=0o700)
    (helper.state / "generation").write_text("x")
    (helper.state / "generation").chmod(0o600)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (_own_key, "5001"),
        (_open_settings, "helper.json"),
        (_open_folder, "etc"),
        (_open_parent, "root"),
        (_link, "link"),
        (_private_key, "order.pub"),
        (_no_key, "order.pub"),
        (_run_is_a_link, "run"),
        (_run_is_a_users, "5001"),
        (_damaged_generation, "state"),
        (lambda helper: helper.configure(account="nobody-there"), "account"),
        (lambda helper: helper.configure(node="a/b"), "node"),
        (lambda helper: helper.configure(node=None), "node"),
        (lambda helper: helper.configure(system_users=["root"]), "system_users"),
        (lambda helper: helper.configure(cpus="3-0"), "cpus"),
        (lambda helper: helper.configure(cpus=4), "cpus"),
        (lambda helper: helper.configure(max_tasks=0), "max_tasks"),
        (lambda helper: helper.configure(key="x"), "key"),
    ],
)
def test_settings_that_are_not_safe(
    stopped: Helper, change: Callable[[Helper], None], word: str
) -> None:
    change(stopped)
    done = run(stopped)
    assert done.returncode == 2
    assert done.stderr.startswith("pliant node helper: ")
    assert word in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_it_runs_once(stopped: Helper) -> None:
    stopped.start()
    done = run(stopped)
    assert done.returncode == 2
    assert "another root helper" in done.stderr
    stopped.kill()


def test_root_runs_it_isolated(stopped: Helper) -> None:
    module = ["-m", "pliant.nodectl.root_helper"]
    done = subprocess.run(
        [stopped.python, *module], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "python -I" in done.stderr
    setpriv = ["setpriv", "--reuid", "5001", "--regid", "5001", "--clear-groups"]
    done = subprocess.run(
        [*setpriv, stopped.python, "-I", *module],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0
