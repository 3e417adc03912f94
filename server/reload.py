"""SIGHUP: reopen the log file and read the configuration again while the server runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pliant.core.values.timeouts import Timeouts
from pliant.protos.daemons.log_files import LogFile
from pliant.server.config import Config, ConfigError

log = logging.getLogger(__name__)

#: Keys that a running server can change, in addition to those of ``Timeouts``. Others need a
#: restart.
_RELOADED = frozenset(
    {
        "negotiation",
        "session_rate",
        "session_burst",
        "debug",
        "interface",
        "operators",
        "roles",
        "fairshare",
        "max_array_size",
        "federated_processors",
        "user_limits",
    }
)

#: Characters of a value in the log.
_MAX_SHOWN = 80


def is_reloaded(key: str) -> bool:
    """Return whether a change of a configuration key takes effect without a restart."""
    # The server and the processes on the nodes count leases and must agree on their length.
    return key in _RELOADED or (key in Timeouts.__dataclass_fields__ and key != "lease_s")


class Reload:
    """Reloads configuration and log file on SIGHUP, in the main thread."""

    def __init__(
        self, config: Config, read: Callable[[], Config], apply: Callable[[Config], None]
    ) -> None:
        """Store the present configuration, to compare later ones with it.

        Args:
            config: the configuration that the server started with.
            read: reads the configuration again, with the options of the command line.
            apply: makes the server use a changed configuration.
        """
        self._config, self._read, self._apply = config, read, apply

    @property
    def config(self) -> Config:
        """Return the configuration in force."""
        return self._config

    def handle(self, file: LogFile) -> None:
        """Reopen the log and apply changed settings. A wrong configuration changes nothing."""
        file.reopen()
        try:
            config = self._read()
        except ConfigError as error:
            log.error("SIGHUP: %s; nothing is changed", error)
            return
        old = self._config
        keys = Config.__struct_fields__
        changed = [key for key in keys if getattr(config, key) != getattr(old, key)]
        taken = [key for key in changed if is_reloaded(key)]
        self._config = old.replaced({key: getattr(config, key) for key in taken})
        self._apply(self._config)
        texts = [f"{key} ({_shown(old, key)} -> {_shown(config, key)})" for key in taken]
        log.info("SIGHUP: log opened again, new settings: %s", ", ".join(texts) or "none")
        if others := [key for key in changed if key not in taken]:
            log.warning("SIGHUP: changed after the next start: %s", ", ".join(others))


def _shown(config: Config, key: str) -> str:
    """Return a value as one line that is not too long for a log."""
    text = str(getattr(config, key))
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
