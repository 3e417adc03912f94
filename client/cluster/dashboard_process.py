"""The dashboard next to a cluster of this machine: a child process that ends with its server."""

from __future__ import annotations

import os
import subprocess
import sys

from pliant.client.client_errors import ClientError

#: Lines that the dashboard prints: an address for actions, and one to share.
_LINES = 2
_STOP_S = 10.0


class DashboardProcess:
    """The process of ``pliant dashboard``, started by ``pliant up``."""

    def __init__(self, state: str, run: str, *, opens: bool = False) -> None:
        """Start the dashboard.

        Args:
            state: the state folder, for its log.
            run: the folder of the server's socket.
            opens: whether the dashboard opens a browser.
        """
        self._log = os.path.join(state, "dashboard.log")
        python = [sys.executable, "-P", "-m"]
        command = [*python, "pliant.client.commands.cli", "dashboard", "--with-server"]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [*command, *(["--open"] if opens else [])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PLIANT_RUN_DIR": run},
                start_new_session=True,
            )

    def addresses(self) -> list[str]:
        """Wait until the dashboard serves its page, and return the lines with its addresses.

        Raises:
            ClientError: the dashboard did not start; the text says why.
        """
        assert self._process.stdout is not None
        lines = [self._process.stdout.readline().decode() for _ in range(_LINES)]
        if not all(lines):
            self.stop()
            with open(self._log, encoding="utf-8", errors="replace") as log:
                said = log.read().strip().splitlines()
            raise ClientError(f"no dashboard: {said[-1] if said else f'see {self._log}'}")
        return [line.rstrip("\n") for line in lines]

    def stop(self) -> None:
        """End the process of the dashboard."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
