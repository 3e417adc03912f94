"""The configuration that a running server uses, in a file next to its socket.

``pliant config diff --running`` compares a file with it. The run folder is private to the account
of the server, so only this account and root can read the file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from pliant.protos.daemons.atomic_files import write_whole
from pliant.server.config import Config, ConfigError

_FILE = "server.config.json"


def write_running_config(config: Config) -> None:
    """Write the configuration that the server of this process uses from now on."""
    content = {"pid": os.getpid(), "config": msgspec.to_builtins(config)}
    write_whole(config.run / _FILE, json.dumps(content))


def remove_running_config(config: Config) -> None:
    """Remove the file with the configuration that this server uses, because the server ends."""
    (config.run / _FILE).unlink(missing_ok=True)


def read_running_config(run: Path) -> dict[str, Any]:
    """Return the configuration in force, by key.

    Args:
        run: the run folder of the server.

    Raises:
        ConfigError: no server runs there, or this account may not read its configuration.
    """
    path = run / _FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        os.kill(content["pid"], 0)
    except (FileNotFoundError, ProcessLookupError):
        raise ConfigError(f"no server runs in {run}: name its folder with --run-dir") from None
    except PermissionError:
        raise ConfigError(
            f"{path}: only root and the account of the server may read its configuration"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    values: dict[str, Any] = content["config"]
    return values
