"""Users of a login host use the server through a login agent, with real sockets and accounts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pliant.client.login_agent.renewal import is_due, renew
from pliant.client.login_agent.server_link import ServerLinks
from pliant.protos.daemons.login_agent_user import UserAssertion, UserAssertionError
from pliant.protos.daemons.tls import client_context
from pliant.protos.identity import node_files
from pliant.protos.identity.certificate_names import Role
from pliant.protos.identity.certificates import parse_certificates
from serverkit import Server, User
from testkit import wait_until
from tlskit import Credentials, Membership
from userkit import BOB, ChildFailedError, held_as, needs_root, open_folder, run_as

pytestmark = [needs_root, pytest.mark.cluster, pytest.mark.timeout(240)]

#: An account that every host has, with an id for which agents may speak.
NOBODY = pwd.getpwnam("nobody")
AGENT = "login1"


class Site:
    """A server with the port for login hosts, and login agents."""

    def __init__(self, base: Path, folder: Path) -> None:
        self.base, self.folder = base, folder
        self.roles = base / "roles.yaml"
        self.roles.write_text("{}")
        self.server = Server(
            base,
            users="all",
            users_dir=str(folder / "server"),
            roles=str(self.roles),
            allow_root_jobs=True,
            listen="127.0.0.1:0",
            listen_users="127.0.0.1:0",
        )
        self.members = Membership(self.server.state)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        found = json.loads((self.server.run / "cluster.addresses").read_text())
        return str(found["users"])

    def admit(self, name: str = AGENT) -> Credentials:
        """Make the certificate of a login agent, and list the agent."""
        return self.members.admit_agent(name)

    def identity(self, made: Credentials, name: str = AGENT, place: str = "identity") -> Path:
        """Write the folder of an agent's identity."""
        directory = self.base / f"{place}-{name}"
        self.members.write_agent_identity(directory, name, made)
        return directory

    def start_agent(self, identity: Path, server: str = "") -> Path:
        """Start an agent, and return its socket for users."""
        users = self.folder / "login"
        process = self.spawn_agent(identity, server or self.address, users)
        path = users / "server.sock"
        wait_until(lambda: path.exists() or process.poll() is not None, what="the agent")
        assert process.poll() is None
        return path

    def spawn_agent(self, identity: Path, server: str, users: Path) -> subprocess.Popen[bytes]:
        module = "pliant.client.login_agent.login_agent_command"
        command = f"import sys; from {module} import main; sys.exit(main())"
        words = ["--identity", str(identity), "--users-dir", str(users)]
        words += [] if server == "learned" else ["--server", server]
        process = subprocess.Popen([sys.executable, "-c", command, *words], stderr=subprocess.PIPE)
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        self.server.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_folder() as folder:
        made = Site(tmp_path, folder)
        yield made
        made.close()


def ask_all(path: Path, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answers = []
    for request in requests:
        with User(path) as user:
            try:
                user.send(json.dumps(request).encode() + b"\n")
            except BrokenPipeError:
                pass  # it was refused before it was read
            answers.append(user.receive())
    return answers


def ask(path: Path, uid: int, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    return run_as(uid, partial(ask_all, path, list(requests)))


def message(answer: dict[str, Any]) -> str:
    return str(answer["error"]["message"]) if not answer["ok"] else ""


def test_a_user_of_a_login_host_has_the_rights_of_a_user(site: Site) -> None:
    site.server.start()
    node = site.server.controller().welcome()
    with site.server.user() as user:
        job = user.submit(hold=True, cwd="/tmp/not-for-others")
    path = site.start_agent(site.identity(site.admit()))
    ping, jobs, cancel, drain, stop = ask(
        path,
        NOBODY.pw_uid,
        {"op": "ping"},
        {"op": "jobs"},
        {"op": "cancel", "ids": [job]},
        {"op": "drain", "node": "n1"},
        {"op": "stop"},
    )
    assert ping["ok"]
    assert [each["id"] for each in jobs["jobs"]] == [job]
    assert "not-for-others" not in json.dumps(jobs)
    assert "belongs to root" in cancel["results"][0]["error"]
    assert "only an operator" in message(drain)
    assert "only an administrator" in message(stop)
    # An operator by the roles file is one here, too; an administrator is not.
    nobody = {"users": ["nobody"]}
    for roles, is_operator in (({"operators": nobody}, True), ({"administrators": nobody}, False)):
        site.roles.write_text(json.dumps(roles))
        reload(site.server)
        drain, stop = ask(path, NOBODY.pw_uid, {"op": "drain", "node": "n1"}, {"op": "stop"})
        assert drain["ok"] == is_operator, (roles, drain)
        assert "only an administrator" in message(stop)
    node.close()


def pliant(state: Path, *words: str, run: Path | None = None) -> str:
    """Run a command with a state folder, and return what it prints."""
    code = "import sys; from pliant.client.commands.cli import main; sys.exit(main())"
    environment = {**os.environ, "PLIANT_STATE_DIR": str(state)}
    environment["PLIANT_RUN_DIR"] = str(run or state / "run")
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_host_becomes_a_login_host_with_a_token_until_it_is_revoked(site: Site) -> None:
    site.server.start()
    state, run, login = site.server.state, site.server.run, site.base / "login"
    token = pliant(state, "cluster", "token", "--login-agent", AGENT, run=run)
    assert "login-agent" in pliant(state, "cluster", "tokens", run=run)
    joined = pliant(login, "node", "join", token)
    assert f"this host is login-agent {AGENT} of cluster blue" in joined
    assert f"login-agent {AGENT}" in pliant(login, "node", "show")
    assert AGENT in pliant(state, "cluster", "nodes", "--login-agents", run=run)
    assert AGENT not in pliant(state, "cluster", "nodes", run=run)
    # It has learned the address of the server, too.
    path = site.start_agent(login / "node-identity", "learned")
    assert ask(path, NOBODY.pw_uid, {"op": "ping"})[0]["ok"]
    with site.server.user() as user:
        node = site.server.controller().welcome()
        job = user.submit(hold=True)
        node.close()
    with held_as(NOBODY.pw_uid, partial(begin_to_wait, path, job)):
        assert "revoked" in pliant(state, "cluster", "revoke", AGENT, "--login-agents", run=run)
        # Connections that are open end, too.
        closed = "closed a connection of a login host: login agent login1 is revoked"
        wait_until(lambda: closed in site.server.log(), what="the end of the connection")
    with pytest.raises(ChildFailedError, match="ConnectionError"):
        ask(path, NOBODY.pw_uid, {"op": "ping"})
    assert "is revoked" in site.server.log()


_held: list[User] = []


def begin_to_wait(path: Path, job: int) -> None:
    user = User(path)
    _held.append(user)
    user.do("ping")
    user.send(json.dumps({"op": "wait", "id": job}).encode() + b"\n")


def test_a_certificate_is_renewed_in_the_second_half_of_its_life(site: Site) -> None:
    site.server.start()
    made = site.admit()
    directory = site.identity(made)
    links = ServerLinks(directory, [site.address])
    assert not is_due(directory, time.time())
    with pytest.raises(UserAssertionError, match="not due"):
        asyncio.run(renew(directory, links))
    old = site.members.issue(AGENT, Role.LOGIN_AGENT, lifetime_s=7200, age_s=5400)
    site.members.agents.admit(AGENT, None, parse_certificates(old.certificates)[0], now=time.time())
    directory = site.identity(old, place="due")
    assert is_due(directory, time.time())
    path = site.start_agent(directory)
    wait_until(lambda: not is_due(directory, time.time()), what="the new certificate")
    assert "login agent login1: certificate renewed" in site.server.log()
    assert ask(path, NOBODY.pw_uid, {"op": "ping"})[0]["ok"]
    renewed = node_files.load_node_identity(directory, role=Role.LOGIN_AGENT)
    assert renewed.key != old.key
    assert site.members.agents.read()[AGENT].allows(renewed.chain[0])


def reload(server: Server) -> None:
    assert server.process is not None
    before = server.log().count("SIGHUP")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log().count("SIGHUP") > before, what="the answer to SIGHUP")


def test_agents_do_not_speak_for_root_and_unknown_users(site: Site) -> None:
    site.server.start()
    path = site.start_agent(site.identity(site.admit()))
    (answer,) = ask(path, 0, {"op": "ping"})
    assert "users with an id from 1000 only" in message(answer)
    (answer,) = ask(path, BOB, {"op": "ping"})
    assert "knows no user with the id 5002" in message(answer)


def test_a_server_that_is_down_and_comes_back(site: Site) -> None:
    site.server.start()
    address = site.address
    path = site.start_agent(site.identity(site.admit()))
    assert ask(path, NOBODY.pw_uid, {"op": "ping"})[0]["ok"]
    site.server.stop()
    (answer,) = ask(path, NOBODY.pw_uid, {"op": "ping"})
    assert answer["error"]["kind"] == "unavailable"
    assert f"cannot reach the server ({address}: " in message(answer)
    site.server.start()
    assert site.address == address  # the port is kept
    assert ask(path, NOBODY.pw_uid, {"op": "ping"})[0]["ok"]


def test_a_second_agent_and_a_wrong_identity_are_refused(site: Site) -> None:
    site.server.start()
    identity = site.identity(site.admit())
    path = site.start_agent(identity)
    other = site.spawn_agent(identity, site.address, path.parent)
    assert other.wait(60) == 1
    assert other.stderr is not None
    assert b"another login agent" in other.stderr.read()
    lonely = site.spawn_agent(site.base / "nothing", site.address, path.parent)
    assert lonely.wait(60) == 1
    assert lonely.stderr is not None
    assert b"no usable identity" in lonely.stderr.read()


@pytest.mark.case(57)
def test_an_agent_trusts_no_server_of_another_cluster(site: Site, tmp_path: Path) -> None:
    """A man in the middle has certificates of its own; the user's request must not reach it."""
    site.server.start()
    stranger = Membership(tmp_path / "stranger").issue("x", Role.SERVER)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pem = tmp_path / "pem"
    pem.write_bytes(stranger.key + stranger.certificates)
    context.load_cert_chain(pem)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        path = site.start_agent(
            site.identity(site.admit()), f"127.0.0.1:{listener.getsockname()[1]}"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", _ASK, str(path), str(NOBODY.pw_uid)],
            stdout=subprocess.PIPE,
            text=True,
        )
        link, _ = listener.accept()
        link.settimeout(30)
        heard = b""
        with link, contextlib.suppress(ssl.SSLError, ConnectionError):
            heard = context.wrap_socket(link, server_side=True).recv(1000)
        said, _ = child.communicate(timeout=60)
    assert heard == b""
    assert "its certificate is not trusted" in said


_ASK = """
import os, socket, sys
link = socket.socket(socket.AF_UNIX)
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
link.connect(sys.argv[1])
link.sendall(b'{"op":"submit"}\\n')
print(link.makefile().readline())
"""


def talk(site: Site, made: Credentials | None, line: bytes, roots: bytes = b"") -> bytes:
    """Return what the server answers to the first line of a peer and a request after it."""
    if made is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=site.members.roots.decode())
    else:
        context = client_context(made.key, made.certificates, roots or site.members.roots)
    host, port = site.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as link:
        try:
            with context.wrap_socket(link, server_hostname="server.pliant") as wrapped:
                wrapped.sendall(line + b'{"op":"ping"}\n')
                return wrapped.recv(10_000)
        except (ssl.SSLError, ConnectionError):
            return b""


GOOD = UserAssertion(NOBODY.pw_uid, "nobody").encode()


@pytest.mark.case(57, 58)
def test_peers_that_are_no_login_agents_are_refused(site: Site, tmp_path: Path) -> None:
    site.server.start()
    agent = site.admit()
    assert json.loads(talk(site, agent, GOOD))["ok"]
    stranger = Membership(tmp_path / "stranger")
    old = site.admit("login2")
    site.admit("login2")  # it has joined again, so that the first certificate does not count
    revoked = site.admit("login3")
    site.members.agents.revoke("login3", now=time.time())
    peers = {
        "no certificate": None,
        "another cluster": stranger.issue(AGENT, Role.LOGIN_AGENT),
        "a node": site.members.admit("n7"),
        "not listed": site.members.issue("login9", Role.LOGIN_AGENT),
        "an old certificate": old,
        "revoked": revoked,
        "expired": site.members.issue(AGENT, Role.LOGIN_AGENT, lifetime_s=60, age_s=3600),
    }
    for what, made in peers.items():
        assert talk(site, made, GOOD) == b"", what
    assert json.loads(talk(site, agent, GOOD))["ok"]
    for text in ("is not a login agent", "has not joined", "is revoked", "old certificate"):
        assert text in site.server.log(), text
    assert "Traceback" not in site.server.log()


@pytest.mark.case(58)
@pytest.mark.parametrize(
    ("line", "told"),
    [
        (UserAssertion(0, "root").encode(), "from 1000 only"),
        (UserAssertion(999, "daemon").encode(), "from 1000 only"),
        (UserAssertion(-1, "nobody").encode(), "from 1000 only"),
        (UserAssertion(1 << 32, "nobody").encode(), "from 1000 only"),
        (UserAssertion(5002, "bob").encode(), "knows no user with the id 5002"),
        (UserAssertion(NOBODY.pw_uid, "root").encode(), "give each user one id"),
        (b'{"login_agent":2,"uid":65534,"user":"nobody"}\n', "the same version"),
        (b'{"login_agent":1,"uid":"65534","user":"nobody"}\n', "names no user"),
        (b'{"op":"ping"}\n', "not that of a login agent"),
        (b"[" * 900 + b"\n", "not that of a login agent"),
        (b"x" * 2000 + b"\n", "not that of a login agent"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_agent_cannot_speak_for_everybody(
    login_port: tuple[Site, Credentials], line: bytes, told: str
) -> None:
    site, agent = login_port
    answer = json.loads(talk(site, agent, line))
    assert not answer["ok"]
    assert told in message(answer)


@pytest.fixture(scope="module")
def login_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Credentials]]:
    with open_folder() as folder:
        site = Site(tmp_path_factory.mktemp("port"), folder)
        site.server.start()
        with contextlib.closing(site):
            yield site, site.admit()
