"""The page of messages has every message that the sources can show, each with what helps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"

#: What stands for a name or a number, on the page and in messages that are put together.
GAP = "…"

#: For each part: the errors whose first argument a user reads.
SHOWN = {
    "appkit": {
        "AppkitError",
        "AttributeError",
        "CheckpointError",
        "DistributionError",
        "DuplicateName",
        "LateRegistration",
        "LoopError",
        "NoMPILibrary",
        "NotJoined",
        "RegistrationMismatch",
        "RequestError",
        "StaleHandle",
        "TypeError",
        "ValueError",
        "end_now",
    },
    "core": {"SizesError"},
    "client": {
        "ArgumentTypeError",
        "ClientError",
        "DaemonDiedError",
        "LostServerError",
        "NoServerError",
        "RequestError",
        "SilentServerError",
        "SubmitError",
        "UsageError",
        "fail",
    },
    "server": {"AlreadyRunningError", "ConfigError", "DatabaseUnusableError", "RequestError"},
    "strategies": {"OptionError", "UnknownOptionError", "UnknownStrategyError"},
    "simulator": {"StrategyFaultError"},
    "nodectl": {"BusyError", "LaunchError", "RefusedError", "SettingsError"},
}

#: Files of appkit whose errors stay between its own processes and the server.
INSIDE = {
    "json_lines.py",
    "plain_data.py",
    "plain_messages.py",
    "peer.py",
    "proof.py",
    "layout.py",
    "cyclic_layout.py",
    "ranges.py",
    "plan.py",
    "templates.py",
}

#: What writes into a log, of these objects.
LOGS = {"critical", "error", "exception", "warning"}
LOGGERS = {"log", "logger"}

#: Functions that return why something is refused.
REFUSING = re.compile(r"_why_not\w*|_fault|_refusal|refusal|compare")


def text_of(node: ast.expr) -> str:
    """Return a message as the source has it, with gaps for what is not known before."""
    match node:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr():
            return "".join(text_of(part) for part in node.values)
        case ast.BinOp(left, ast.Add(), right):
            return text_of(left) + text_of(right)
    return GAP


def message(call: ast.Call) -> str:
    """Return what a user reads of an error; one of a submission has three parts."""
    name = name_of(call)
    parts = [text_of(argument) for argument in call.args]
    if name == "SubmitError":
        return "{}: {}; {}".format(*parts, "")[: None if len(parts) > 2 else -2]
    if name in LOGS:
        return re.sub(r"%[sdg]", GAP, parts[0])
    return parts[1] if name in {"fail", "end_now", "Answer"} else parts[0]


def is_shown(call: ast.Call, errors: set[str]) -> bool:
    """Whether its text comes before a user's eyes."""
    name, function = name_of(call), call.func
    if name in LOGS and isinstance(function, ast.Attribute):
        return isinstance(function.value, ast.Name) and function.value.id in LOGGERS
    to_people = name == "print" and any(keyword.arg == "file" for keyword in call.keywords)
    second = name in {"fail", "end_now", "Answer"}
    return (name in errors or to_people) and len(call.args) > second


def name_of(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


class Constants(ast.NodeTransformer):
    """Puts the texts of a module's constants where they are named."""

    def __init__(self, tree: ast.Module) -> None:
        self._known = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and says_something(text_of(node.value))
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._known.get(node.id, node) if isinstance(node.ctx, ast.Load) else node


def messages(part: str) -> Iterator[tuple[str, str]]:
    """Yield where each message of a part is, and its text."""
    shown = SHOWN[part] | ({"Answer"} if part == "core" else set())
    for path in sorted((ROOT / part).rglob("*.py")):
        if part == "appkit" and path.name in INSIDE:
            continue
        tree = ast.parse(path.read_text())
        tree = Constants(tree).visit(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and is_shown(node, shown):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", message(node)
        yield from refusals(path, tree)


def refusals(path: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    for function in ast.walk(tree):
        if not (isinstance(function, ast.FunctionDef) and REFUSING.fullmatch(function.name)):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text_of(node.value)


def pattern(text: str) -> re.Pattern[str]:
    """Return what finds a message on the page, whatever stands for its gaps there."""
    fragments = plain(text).split(GAP)
    return re.compile(".*?".join(re.escape(fragment.strip()) for fragment in fragments))


def plain(text: str) -> str:
    return " ".join(text.partition("\n")[0].replace("`", "").replace("\\|", "|").split())


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def says_something(text: str) -> bool:
    """Whether there is more to it than what another message tells."""
    return len(re.findall(r"[a-z]", text)) >= 8


@pytest.mark.parametrize("part", SHOWN)
def test_every_message_is_on_the_page(part: str) -> None:
    listed = [plain(row[0]) for row in rows()]
    found = [(place, text) for place, text in messages(part) if says_something(text)]
    assert len(found) > 5
    missing = [
        f"{place}: {text}"
        for place, text in found
        if not any(pattern(text).search(line) for line in listed)
    ]
    more = "\n".join(missing)
    assert not missing, f"give each a row in docs/troubleshooting.md, with what helps:\n{more}"


def test_every_row_says_what_helps() -> None:
    assert [row for row in rows() if len(row) != 2 or not all(row)] == []


def test_a_message_without_a_row_is_found() -> None:
    call = ast.parse("raise DistributionError(f'{self.what}: no such {thing} was ever seen')")
    (raised,) = [node for node in ast.walk(call) if isinstance(node, ast.Call)]
    assert message(raised) == "…: no such … was ever seen"
    listed = [plain(row[0]) for row in rows()]
    assert not any(pattern(message(raised)).search(line) for line in listed)


def test_a_message_with_gaps_finds_its_row() -> None:
    found = pattern("array …: shape … has no axis …")
    assert found.search("array …: shape … has no axis …")
    assert found.search("array 'u': shape (10, 10) has no axis 2")
    assert not found.search("array 'u': shape (10, 10) has an axis 2")
