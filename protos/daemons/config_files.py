"""Read the configuration files of the daemons, which are YAML of limited size and depth."""

from __future__ import annotations

import os
import re
import select
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pliant.core.support.base_error import PliantError
from pliant.core.support.yaml_duplicate_keys import find_duplicate_key

# The import of YAML is a twentieth of a controller's start, and most controllers have no such file.
if TYPE_CHECKING:
    import yaml

#: Bytes of the largest file that is read.
MAX_BYTES = 1 << 20
#: Largest nesting of collections; the configurations of the daemons need three.
MAX_DEPTH = 16
#: How long the writer of a pipe may take, seconds.
_PIPE_TIMEOUT_S = 10.0


class ConfigFileError(PliantError):
    """A configuration file cannot be used; the text has the reason, but not the file's name."""


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a configuration file; return its values by key, and an empty mapping for an empty file.

    Raises:
        ConfigFileError: the file cannot be read, or is no configuration.
    """
    try:
        content = _read(path)
    except (OSError, ValueError) as error:
        raise ConfigFileError(_why(error)) from None
    return parse_config(content)


def parse_config(content: bytes) -> dict[str, Any]:
    """Parse the content of a configuration file; return its values by key.

    Raises:
        ConfigFileError: the content is nested too deeply, is not YAML, has a key twice, or has a
            text that no path or name can have.
    """
    import yaml

    try:
        text = content.decode("utf-8")
    except ValueError as error:
        raise ConfigFileError(_why(error)) from None
    try:
        _check_structure(text)
        loader = yaml.SafeLoader(text)
        document = loader.get_single_node()
        if fault := find_duplicate_key(document):
            raise ConfigFileError(fault)
        data = loader.construct_document(document) if document else None
    except yaml.YAMLError as error:
        raise ConfigFileError(f"not YAML: {' '.join(str(error).split())}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        # The YAML reader passes on the errors of converting numbers and dates.
        raise ConfigFileError(f"not YAML: {' '.join(str(error).split())}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigFileError(f"expected keys and values, got {type(data).__name__}")
    for place, value in _texts(data):
        check_text(place, value)
    return data


def key_lines(path: str | os.PathLike[str]) -> dict[str, int]:
    """Return the line number of each key of a configuration file; inner keys as ``outer.inner``.

    The result is empty if the file cannot be read a second time, for example because it is a pipe.
    """
    import yaml

    if not os.path.isfile(path):
        return {}
    try:
        document = yaml.compose(_read(path).decode("utf-8"), Loader=yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return dict(_key_lines(document, ""))


def _key_lines(node: yaml.Node | None, place: str) -> Iterator[tuple[str, int]]:
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        name = f"{place}.{key.value}" if place else str(key.value)
        yield name, key.start_mark.line + 1
        yield from _key_lines(value, name)


def with_line(path: str | os.PathLike[str], message: str) -> str:
    """Return an error message about a key of a configuration file, after the key's line number.

    The message must begin with the key. It is returned unchanged if the file does not have the key.
    """
    lines, key = key_lines(path), re.split(r"[:\s\[]", message, maxsplit=1)[0]
    while key and key not in lines:
        key = key.rpartition(".")[0]
    return f"line {lines[key]}: {message}" if key else message


def check_text(name: str, value: str) -> None:
    """Check that a text can be part of a path, an argument or a message.

    Raises:
        ConfigFileError: it has a zero byte or a surrogate; the error text begins with ``name``.
    """
    for char in value:
        if char == "\0":
            raise ConfigFileError(f"{name}: a zero byte cannot be part of it; remove it")
        if "\ud800" <= char <= "\udfff":
            raise ConfigFileError(
                f"{name}: U+{ord(char):04X} is half of a character; write the whole one"
            )


def _read(path: str | os.PathLike[str]) -> bytes:
    """Read a file, a pipe or ``/dev/null`` to its end; raise ValueError if a pipe stays silent."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(handle).st_mode
        is_stream = stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
        if not (stat.S_ISREG(mode) or is_stream) or os.isatty(handle):
            raise ValueError(f"it is {_kind(mode)}; name a file")
        content = b""
        while len(content) <= MAX_BYTES:
            if is_stream and not select.select([handle], [], [], _PIPE_TIMEOUT_S)[0]:
                raise ValueError(f"nothing was written to it for {_PIPE_TIMEOUT_S:g} s")
            part = os.read(handle, MAX_BYTES)
            if not part:
                return content
            content += part
        raise ValueError(f"larger than {MAX_BYTES} bytes")
    finally:
        os.close(handle)


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    if isinstance(error, UnicodeDecodeError):
        return f"not YAML: byte {error.start} is not UTF-8"
    return str(error)


def _check_structure(text: str) -> None:
    """Refuse aliases, and texts nested so deeply that the recursive YAML reader could fail."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            line = _line(event)
            raise ConfigFileError(f"line {line}: an alias (*{event.anchor}); write the value again")
        if depth > MAX_DEPTH:
            line = _line(event)
            raise ConfigFileError(f"line {line}: nested deeper than {MAX_DEPTH} levels")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _texts(value: object, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text in a configuration value, at any depth, as a pair of its key and the text.

    Keys that are texts are yielded as well, with ``a key`` instead of the key.

    Args:
        value: the value.
        place: the key of the value, as ``outer.inner``; empty for the whole file.
    """
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(key, str):
                yield "a key", key
            yield from _texts(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, place)
