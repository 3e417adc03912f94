"""``jobsub --bid``: several servers are asked, and the best one gets the job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clientkit.user_socket import FakeUserSocket
from pliant.client.commands.jobsub import main

Capture = pytest.CaptureFixture[str]
NOW = 1.8e9


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def folder(path: Path) -> Path:
    """Return a new folder that only this user can write."""
    path.mkdir(mode=0o700, parents=True)
    return path


MakeServer = Callable[..., FakeUserSocket]


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[MakeServer]:
    made: list[FakeUserSocket] = []

    def make(name: str, **answer: Any) -> FakeUserSocket:
        fake = FakeUserSocket(folder(tmp_path / name))
        usual = {"accepted": True, "start": NOW, "processors": 2, "price": None, "reason": "why"}
        fake.answers["query"] = {**usual, "strategy": "fcfs", "now": NOW, **answer}
        fake.answers["submit"] = {"id": 10 + len(made)}
        made.append(fake)
        return fake

    yield make
    for fake in made:
        fake.close()


def operations(server: FakeUserSocket) -> list[str]:
    return [request["op"] for request in server.requests]


def test_the_earliest_end_wins(make_server: MakeServer, capsys: Capture) -> None:
    soon = make_server("soon", start=NOW + 10, processors=1)
    wide = make_server("wide", start=NOW + 30, processors=4)
    words = ["--bid", "soon,wide", "-n", "1-4", "--estimate", "60s", "true"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert out == "11\n"  # 30 s + 60 s on 4 processors is before 10 s + 60 s on one
    assert [line.split()[0] for line in err.splitlines() if "why" in line] == ["soon", "*"]
    assert operations(soon) == ["query"]
    assert operations(wide) == ["query", "submit"]


def test_the_lowest_price_wins(make_server: MakeServer, capsys: Capture) -> None:
    make_server("fast", price=100.0)
    make_server("cheap", price=1.0, start=NOW + 1000)
    make_server("unknown")
    words = ["--bid", "fast,cheap,unknown", "-n", "2", "--estimate", "60s", "true"]
    assert main([*words[:2], "--bid-by", "price", *words[2:]]) == 0
    assert main(words) == 0
    assert capsys.readouterr().out == "11\n10\n"


def test_servers_that_refuse_or_do_not_answer_are_named(
    make_server: MakeServer, capsys: Capture
) -> None:
    make_server("full", accepted=False, start=None)
    make_server("odd").answers["query"] = {
        "ok": False,
        "error": {"kind": "bad", "message": "no such field"},
    }
    make_server("vague", accepted=None, start=None, processors=0)
    good = make_server("good", start=NOW + 500)
    assert main(["--bid", "full,odd,gone,vague,good", "true"]) == 0
    out, err = capsys.readouterr()
    assert out == "13\n"
    assert operations(good)[-1] == "submit"
    assert "no such field" in err
    assert "no server answers on gone" in err


def test_json_has_all_bids(make_server: MakeServer, capsys: Capture) -> None:
    make_server("a")
    assert main(["--json", "--bid", "a,gone", "true"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["id"], found["server"]) == (10, "a")
    assert [bool(bid["fault"]) for bid in found["bids"]] == [False, True]


@pytest.mark.parametrize(("answers", "code"), [([], 3), ([{"accepted": False}], 1)])
def test_nothing_is_submitted_without_a_bid(
    make_server: MakeServer, capsys: Capture, answers: list[dict[str, Any]], code: int
) -> None:
    servers = [make_server(f"s{place}", **answer) for place, answer in enumerate(answers)]
    assert main(["--bid", "s0,gone", "true"]) == code
    assert "--bid: no server" in capsys.readouterr().err
    assert all(operations(server) == ["query"] for server in servers)


def test_a_query_of_several_servers_submits_nothing(
    make_server: MakeServer, capsys: Capture
) -> None:
    server = make_server("a")
    assert main(["--query", "--bid", "a", "true"]) == 0
    assert "accepts" in capsys.readouterr().out
    assert operations(server) == ["query"]


def test_the_state_folder_and_the_socket_name_a_server(
    make_server: MakeServer, capsys: Capture
) -> None:
    make_server("state/run")
    assert main(["--bid", "state", "true"]) == 0
    assert main(["--bid", "state/run/server.sock", "true"]) == 0
    assert capsys.readouterr().out == "10\n10\n"


def test_an_empty_list_of_servers(capsys: Capture) -> None:
    assert main(["--bid", ",", "true"]) == 2
    assert "--bid" in capsys.readouterr().err


def test_bids_survive_a_silent_server(
    tmp_path: Path, make_server: MakeServer, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pliant.client.forecasts.choose_server_by_bid.ANSWER_S", 0.3)
    make_server("good")
    with closing(FakeUserSocket(folder(tmp_path / "mute"))) as mute:
        mute.answers["query"] = {"raw": b"no line yet"}
        assert main(["--bid", "mute,good", "true"]) == 0
    out, err = capsys.readouterr()
    assert out == "10\n"
    assert "mute" in err
