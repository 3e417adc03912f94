from __future__ import annotations

import json
from typing import Any

import pytest

from pliant.client.commands import node
from pliant.client.commands.nodestat import FIELDS, main

Capture = pytest.CaptureFixture[str]

NODE = {
    "name": "n1",
    "cluster": "main",
    "state": "UP",
    "reason": "",
    "slots": 4,
    "used": 3,
    "memory_bytes": 8 << 30,
    "idle_memory_bytes": 1,
    "jobs": [1, 7],
    "address": "127.0.0.1",
    "containment": {"cpus": "cpuset, cgroup v1", "memory": "watched"},
}


@pytest.fixture
def nodes(server: Any) -> Any:
    lost = NODE | {"name": "n2", "state": "LOST", "reason": "silent for 60 s", "jobs": []}
    server.answers["nodes"] = {"nodes": [NODE, lost], "strategy": "egs"}
    return server


@pytest.mark.usefixtures("nodes")
class TestNodestat:
    def test_the_table_shows_use_and_reasons(self, capsys: Capture) -> None:
        assert main([]) == 0
        _, first, second = capsys.readouterr().out.splitlines()
        assert first.split() == ["n1", "main", "UP", "3", "4", "8", "GiB", "1,7"]
        assert second.endswith("silent for 60 s")

    def test_the_long_form_names_what_contains_jobs(self, nodes: Any, capsys: Capture) -> None:
        old = {key: NODE[key] for key in NODE if key != "containment"} | {"name": "n2"}
        nodes.answers["nodes"] = {"nodes": [NODE, old]}
        assert main(["--long"]) == 0
        first, second = capsys.readouterr().out.splitlines()[-2:]
        assert first == "n1: cpus: cpuset, cgroup v1; memory: watched"
        assert second == "n2: containment is not known"

    def test_the_memory_load(self, nodes: Any, capsys: Capture) -> None:
        load = {
            "memory_bytes": 100 << 20,
            "demand_bytes": 96 << 20,
            "idle_bytes": 4 << 20,
            "major_faults_per_s": 9000.4,
            "pressure_percent": 12.5,
            "age_s": 1.0,
            "stale": False,
        }
        stale = NODE | {"name": "n2", "load": load | {"stale": True, "age_s": 61.2}}
        nodes.answers["nodes"] = {"nodes": [NODE | {"load": load}, stale]}
        assert main(["--long"]) == 0
        head, first, second, *_, n1, n2 = capsys.readouterr().out.splitlines()
        assert "faults/s" in head
        assert "9000" in first
        assert "9000" not in second
        assert n1.endswith("load: 96 MiB demanded, 4 MiB idle, 9000 major faults/s, pressure 12 %")
        assert n2.endswith("load: not known, last reported 61 s ago")
        assert main(["--json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["load"] == load
        quiet = NODE | {"load": load | {"major_faults_per_s": 0.0, "pressure_percent": None}}
        nodes.answers["nodes"] = {"nodes": [quiet]}
        assert main(["--long"]) == 0
        assert "faults/s," not in capsys.readouterr().out

    def test_reservations(self, nodes: Any, capsys: Capture) -> None:
        large = NODE | {"reservation": "reserving: becomes free for a large job"}
        nodes.answers["nodes"] = {"nodes": [large, NODE | {"name": "n2", "reservation": ""}]}
        assert main(["--long"]) == 0
        head, first, second, *_, long, _ = capsys.readouterr().out.splitlines()
        assert "reservation" in head
        assert "reserving" in first
        assert "reserving" not in second
        assert long.endswith("reserving: becomes free for a large job")

    def test_nodes_that_cannot_use_the_folder_of_checkpoints_are_named(
        self, nodes: Any, capsys: Capture
    ) -> None:
        good = NODE | {"checkpoints": "shared"}
        nodes.answers["nodes"] = {"nodes": [good]}
        assert main([]) == 0
        assert "unusable" not in capsys.readouterr().out
        bad = NODE | {"name": "n2", "checkpoints": "its mode is 755"}
        nodes.answers["nodes"] = {"nodes": [good, bad]}
        assert main(["--long"]) == 0
        out = capsys.readouterr().out.splitlines()
        assert ["unusable" in line for line in out[:3]] == [False, False, True]
        assert out[-1].endswith("checkpoints: its mode is 755")

    def test_json(self, capsys: Capture) -> None:
        assert main(["--json", "n1"]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert list(found)[: len(FIELDS)] == list(FIELDS)

    def test_nodes_are_sorted_by_name_and_number(self, nodes: Any, capsys: Capture) -> None:
        names = ["n10", "n2", "a", "n1", "7", "n1b"]
        nodes.answers["nodes"] = {"nodes": [NODE | {"name": name} for name in names]}
        assert main(["--json"]) == 0
        found = [node["name"] for node in json.loads(capsys.readouterr().out)]
        assert found == ["7", "a", "n1", "n1b", "n2", "n10"]

    def test_devices_and_properties_have_columns_if_there_are_some(
        self, nodes: Any, capsys: Capture
    ) -> None:
        fast = NODE | {"gres": {"gpu": 4, "fpga": 0}, "properties": ["fast", "a100"]}
        nodes.answers["nodes"] = {"nodes": [fast, NODE | {"name": "n2"}]}
        assert main(["n[1-2]"]) == 0
        head, first, second = capsys.readouterr().out.splitlines()
        assert head.split()[-3:] == ["devices", "properties", "reason"]
        assert first.split()[-2:] == ["gpu:4", "fast,a100"]
        assert second.split()[-2:] == ["-", "-"]

    def test_a_node_that_is_not_there(self, capsys: Capture) -> None:
        assert main(["n9"]) == 1
        assert capsys.readouterr() == ("", "nodestat: there is no node n9\n")


@pytest.mark.usefixtures("state_dir")
def test_no_server() -> None:
    assert main([]) == 3


@pytest.mark.parametrize("action", ["drain", "resume", "remove"])
def test_the_outcome_of_an_order_to_a_node_is_printed(
    action: str, server: Any, capsys: Capture
) -> None:
    server.answers[action] = {"message": f"node n1 {action}ed"}
    assert node.main([action, "n1"]) == 0
    assert capsys.readouterr().out == f"node n1 {action}ed\n"
    assert (server.last["op"], server.last["node"]) == (action, "n1")
    server.refuse(action, "node n1 cannot be removed: job 3 is there")
    assert node.main([action, "n1"]) == 1


def test_named_resources(nodes: Any, capsys: Capture) -> None:
    nodes.answers["nodes"]["resources"] = {"lic": {"total": 4, "used": 3, "free": 1}}
    assert main([]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "resources: lic 3 of 4 used"
