"""What /proc tells."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from pliant.nodectl.host import procfs
from pliant.nodectl.host.procfs import ProcessIdentity

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.mark.case(25)
def test_a_process_is_itself_until_it_ends() -> None:
    child = subprocess.Popen(SLEEP)
    identity = ProcessIdentity.of(child.pid)
    assert identity is not None
    assert identity.alive()
    assert not identity._replace(start=identity.start + 1).alive()
    assert not identity._replace(boot="another").alive()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.alive()  # a zombie runs no more
    child.wait()
    assert ProcessIdentity.of(child.pid) is None


def test_a_name_with_parentheses_does_not_confuse() -> None:
    code = "import time; open('/proc/self/comm', 'w').write(') R 1 (x'); print(1); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-uc", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        stat = procfs.read_stat(child.pid)
        child.kill()
    assert stat is not None
    assert (stat.parent, stat.session) == (os.getpid(), os.getsid(0))
    assert 0 < stat.resident_bytes < 1 << 30


def test_descendants_are_found_level_by_level() -> None:
    command = ["sh", "-c", "sleep 60 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert child.pid in procfs.children(os.getpid())
        below = procfs.descendants(os.getpid())
        assert below.index(child.pid) < below.index(grandchild)
        os.kill(grandchild, 9)


def test_the_environment_of_a_process() -> None:
    with subprocess.Popen(SLEEP, env={"A": "b=c"}) as child:
        while b"A=b=c" not in procfs.environment(child.pid):
            assert child.poll() is None  # until exec
        child.kill()


def test_processes_that_are_not_there() -> None:
    pid = 2**22 + 1
    assert procfs.read_stat(pid) is None
    assert procfs.children(pid) == procfs.descendants(pid) == []
    assert procfs.maps(pid) == []
    assert procfs.environment(pid) == {b""}


@pytest.mark.case(47)
def test_without_free_descriptors_no_process_is_taken_for_ended() -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    another = me._replace(start=me.start + 1)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        alive, of, unknown = another.alive(), ProcessIdentity.of(me.pid), None
        try:
            ProcessIdentity.of(me.pid, strict=True)
        except OSError as error:
            unknown = error
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert alive
    assert of is None
    assert unknown is not None
