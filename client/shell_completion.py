"""``pliant completion``: completion of commands and options for bash, zsh and fish.

The options come from the parsers of the commands, so they cannot differ from the help.
"""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pliant.client.client_errors import ClientError
from pliant.client.commands.cli import describe
from pliant.client.commands.entry_points import Command, find_commands
from pliant.client.terminal.output import Parser, print_text, run_command
from pliant.core.support.command_line import CollectedParsers

PROG = "pliant completion"
SHELLS = ("bash", "zsh", "fish")
#: Commands of their own, by their entry point.
_SCRIPTS = {
    **{name: f"pliant.client.commands.{name}" for name in ("jobsub", "jobstat", "jobdel")},
    **{name: f"pliant.client.commands.{name}" for name in ("jobctl", "nodestat")},
    "jobacct": "pliant.client.accounting.jobacct",
}


class Words(NamedTuple):
    """The words that completion offers after a command such as ``jobsub`` or ``jobctl hold``."""

    #: Such as ``jobctl hold``.
    command: str
    #: Each word with its explanation.
    words: Mapping[str, str]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the completion of all commands for a shell; return the exit code."""
    parser = Parser(
        prog=PROG,
        description="Print a script that completes commands and options of Pliant in a shell.",
        epilog="bash: pliant completion bash > ~/.local/share/bash-completion/completions/pliant\n"
        "      and add `source` of this file to ~/.bashrc, so that it holds for jobsub, too\n"
        "zsh:  source <(pliant completion zsh)\n"
        "fish: pliant completion fish > ~/.config/fish/conf.d/pliant.fish",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    options = parser.parse_args(argv)

    def show() -> int:
        print_text(_MAKERS[options.shell](list(all_words())))
        return 0

    return run_command(PROG, show)


def all_words() -> Iterator[Words]:
    """Yield the words that may follow each command, and each action of a command.

    Raises:
        ClientError: a command has no parser.
    """
    commands = find_commands()
    for name, module in _SCRIPTS.items():
        yield from _words_of(name, find_parser(Command(name, module, "main").load()))
    yield Words("pliant", {name: describe(command) for name, command in commands.items()})
    for name, command in commands.items():
        try:
            function = command.load()
        except ModuleNotFoundError:
            continue  # what it needs is not installed
        yield from _words_of(f"pliant {name}", find_parser(function))


def find_parser(main: Callable[[list[str]], object]) -> argparse.ArgumentParser:
    """Return the parser that a command makes when it is run with ``--help``.

    Raises:
        ClientError: the command makes no parser.
    """
    with CollectedParsers() as found:
        try:
            main(["--help"])
        except SystemExit:
            pass  # argparse ends the program after the help
    if not found:
        raise ClientError(f"{main.__module__} has no parser of its options")
    return found[0]


def _words_of(command: str, parser: argparse.ArgumentParser) -> Iterator[Words]:
    words: dict[str, str] = {}
    actions: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # argparse has no public list of options
        about = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
        for option in action.option_strings:
            words[option] = about.replace("%%", "%")
        if isinstance(action, argparse._SubParsersAction):
            abouts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            words |= {name: abouts.get(name, "") for name in action.choices}
            actions |= action.choices
        elif action.choices and not action.option_strings:
            words |= {str(choice): "" for choice in action.choices}
    yield Words(command, words)
    for name, inner in actions.items():
        yield from _words_of(f"{command} {name}", inner)


def _quoted(text: str) -> str:
    """Return a text in single quotes, in a form that all three shells accept.

    Backslashes are dropped, ' becomes a typographic quote, and white space becomes one space.
    """
    plain = " ".join(text.split()).replace("\\", "").replace("'", "’")
    return f"'{plain}'"


def _roots(found: Sequence[Words]) -> list[str]:
    return sorted({each.command.partition(" ")[0] for each in found})


def _bash(found: Sequence[Words]) -> str:
    cases = "\n".join(
        f"    {_quoted(each.command)}) words={_quoted(' '.join(each.words))} ;;" for each in found
    )
    return f"""\
# Completion of Pliant for bash, made by `pliant completion bash`.
_pliant_words() {{
  case "$1" in
{cases}
    *) return 1 ;;
  esac
}}

_pliant() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[0]##*/}}" words="" place
  for ((place = 1; place < COMP_CWORD; place++)); do
    _pliant_words "$command ${{COMP_WORDS[place]}}" && command="$command ${{COMP_WORDS[place]}}"
  done
  _pliant_words "$command"
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}

complete -o bashdefault -o default -F _pliant {" ".join(_roots(found))}"""


def _zsh(found: Sequence[Words]) -> str:
    return f"""\
# Completion of Pliant for zsh, made by `pliant completion zsh`.
autoload -Uz compinit bashcompinit
(( $+functions[compdef] )) || compinit
bashcompinit
{_bash(found)}"""


def _fish(found: Sequence[Words]) -> str:
    lines = ["# Completion of Pliant for fish, made by `pliant completion fish`."]
    deeper = {each.command for each in found}
    for each in found:
        root, *rest = each.command.split()
        inner = [name for name in each.words if f"{each.command} {name}" in deeper]
        parts = [f"__fish_seen_subcommand_from {name}" for name in rest]
        if inner:
            parts.append(f"not __fish_seen_subcommand_from {' '.join(inner)}")
        when = f" -n {_quoted('; and '.join(parts))}" if parts else ""
        for word, about in each.words.items():
            if word.startswith("--"):
                kind = f"-l {word[2:]}"
            elif word.startswith("-"):
                kind = f"-s {word[1:]}"
            else:
                kind = f"-f -a {_quoted(word)}"
            lines.append(f"complete -c {root}{when} {kind} -d {_quoted(about)}")
    return "\n".join(lines)


_MAKERS: Mapping[str, Callable[[Sequence[Words]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
