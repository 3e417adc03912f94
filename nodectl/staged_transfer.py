"""The process that fetches the staged files of a job, or returns its outputs.

`pliant.nodectl.shim.staging.staged_folder` starts it with the rights of the job's user. It proves
with the token of the run that it belongs to the job. If it fails, the last line on standard error
says why.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from pliant.nodectl.shim.staging.staged_folder import BEFORE, STAGE_FOLDER, WORK
from pliant.protos.hmac_handshake import ClientHandshake, application
from pliant.protos.staging.archive import (
    StagingError,
    changed_files,
    check_space,
    digest,
    pack,
    states,
    unpack,
)
from pliant.protos.staging.environment_variables import STAGE_ARCHIVE, STAGE_OUTPUTS

if TYPE_CHECKING:
    import grpc

    from pliant.protos import app_pb2

#: Bytes of one message; the limit of gRPC messages is a little higher.
_PART_BYTES = 48 << 10
#: Outputs of any size are packed, because the server knows the limit and refuses larger ones.
_NO_LIMIT = 1 << 62
#: Seconds to wait for a server that is away, before the start of the job fails. Outputs wait
#: without a limit, as do the exits of the ranks, which are reported after them.
_FETCH_FOR_S = 120.0
_MIN_WAIT_S, _MAX_WAIT_S = 0.1, 5.0


def main(arguments: list[str]) -> int:
    """Carry out ``fetch`` or ``store``; return the exit code."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.environ["GRPC_VERBOSITY"] = "NONE"
    os.umask(0o077)
    folder = os.environ[STAGE_FOLDER]
    try:
        if arguments == ["fetch"]:
            _fetch(folder)
        else:
            _store(folder)
    except StagingError as error:
        return _fail(f"staged files: {error}")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"staged files: {where}{(error.strerror or str(error)).lower()}")
    return 0


def _fail(text: str) -> int:
    print(" ".join(text.split()), file=sys.stderr)
    return 1


def _fetch(folder: str) -> None:
    """Fetch the archive of a job's staged files from the server, check it, and unpack it."""
    size_text, _, sha256 = os.environ[STAGE_ARCHIVE].partition(":")
    size = int(size_text)
    work, draft = os.path.join(folder, WORK), os.path.join(folder, "archive")
    check_space(folder, 2 * size)
    with open(draft, "w+b") as file:
        _with_server(lambda channel: _receive(channel, file, size), _FETCH_FOR_S)
        file.seek(0)
        if digest(file) != sha256:
            raise StagingError("the files were damaged on their way from the server")
        file.seek(0)
        unpack(file, work, size)
    os.unlink(draft)
    with open(os.path.join(folder, "before.new"), "w", encoding="utf-8") as record:
        json.dump(states(work), record)
    os.replace(record.name, os.path.join(folder, BEFORE))


def _receive(channel: grpc.Channel, file: IO[bytes], size: int) -> None:
    from pliant.protos import app_pb2

    file.seek(0)
    file.truncate()
    stream = _Stream(channel)
    stream.send(app_pb2.StageReport(fetch=True))
    stream.send(None)
    for order in stream.orders():
        try:
            file.write(order.data)
            file.flush()
        except OSError as error:  # an error of the file, not of the connection
            raise StagingError(f"{file.name}: {(error.strerror or '').lower()}") from None
        if file.tell() > size:
            raise StagingError("the files are larger than announced")
        if order.done:
            return
    raise ConnectionError("the server closed the stream")


def _store(folder: str) -> None:
    """Pack the files that the job has written, send them to the server, and remove the folder."""
    work, before = os.path.join(folder, WORK), os.path.join(folder, BEFORE)
    patterns = [each for each in os.environ.get(STAGE_OUTPUTS, "").split(os.pathsep) if each]
    if os.path.exists(before):  # otherwise the files were never fetched, so no rank has run
        with open(before, encoding="utf-8") as record:
            names = changed_files(work, json.load(record), patterns)
        if names:
            with open(os.path.join(folder, "outputs"), "w+b") as file:
                pack(work, names, file, _NO_LIMIT)
                file.seek(0)
                sha256 = digest(file)
                _with_server(lambda channel: _send(channel, file, sha256), None)
    _remove(folder)


def _send(channel: grpc.Channel, file: IO[bytes], sha256: str) -> None:
    from pliant.protos import app_pb2

    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    world, node = os.environ["PLIANT_WORLD"], os.environ["PLIANT_NODE"]
    stream = _Stream(channel)
    outputs = app_pb2.StoreOutputs(world=world, node=node, size=size, sha256=sha256)
    stream.send(app_pb2.StageReport(store=outputs))
    for order in stream.orders():
        if order.done:
            return
        if order.ready:
            stream.send_file(file)
    raise ConnectionError("the server closed the stream")


class _Stream:
    """A stream to the server, on which both sides have proved that they know the job's token."""

    def __init__(self, channel: grpc.Channel) -> None:
        from pliant.protos import app_pb2
        from pliant.protos.app_pb2_grpc import StagingServiceStub

        with open(os.environ["PLIANT_TOKEN_FILE"], "rb") as file:
            token = file.read().strip()
        job, run = int(os.environ["PLIANT_JOB"]), int(os.environ["PLIANT_RUN"])
        shaking = ClientHandshake(token, application(job, run))
        self._outbox: queue.SimpleQueue[app_pb2.StageReport | IO[bytes] | None] = (
            queue.SimpleQueue()
        )
        self._call: Any = StagingServiceStub(channel).Transfer(
            self._reports(), metadata=shaking.metadata
        )
        try:
            proof = shaking.proof(self._call.initial_metadata())
        except BaseException:
            self.send(None)
            raise
        self.send(app_pb2.StageReport(proof=proof))

    def send(self, report: app_pb2.StageReport | None) -> None:
        """Send a message; None ends this side of the stream."""
        self._outbox.put(report)

    def send_file(self, file: IO[bytes]) -> None:
        """Send the rest of a file in parts, as fast as the server takes them."""
        self._outbox.put(file)

    def orders(self) -> Iterator[app_pb2.StageOrder]:
        """Yield the messages of the server.

        Raises:
            StagingError: the server refuses the transfer.
        """
        try:
            for order in self._call:
                if order.problem:
                    raise StagingError(order.problem)
                yield order
        finally:
            self.send(None)  # ends the thread in which gRPC waits for messages to send

    def _reports(self) -> Iterator[app_pb2.StageReport]:
        from pliant.protos import app_pb2

        while (item := self._outbox.get()) is not None:
            if isinstance(item, app_pb2.StageReport):
                yield item
            else:
                while data := item.read(_PART_BYTES):
                    yield app_pb2.StageReport(data=data)


def _with_server(transfer: Callable[[grpc.Channel], None], give_up_s: float | None) -> None:
    """Carry out a transfer; if the server does not answer, try again at its present address.

    Args:
        transfer: the transfer; it begins from the start each time.
        give_up_s: seconds after which it fails; None to try until the server answers.

    Raises:
        StagingError: the server refuses it, or does not answer for ``give_up_s`` seconds.
    """
    import grpc

    from pliant.protos.address import dial_target

    wait, begin = _MIN_WAIT_S, time.monotonic()
    while True:
        try:
            with dial_target(_address()) as target, _channel(target) as channel:
                transfer(channel)
                return
        except grpc.RpcError as error:
            code = getattr(error, "code", lambda: None)()
            if code is grpc.StatusCode.UNIMPLEMENTED:
                raise StagingError("the server is too old to transfer staged files") from None
            if code is grpc.StatusCode.UNAUTHENTICATED:
                why = "the server does not accept the token of this run"
            else:
                why = "the server cannot be reached"
        except (ConnectionError, ValueError, OSError) as error:
            if isinstance(error, OSError) and error.filename == os.environ["PLIANT_TOKEN_FILE"]:
                raise StagingError("the token of this run is gone") from None
            why = f"the server cannot be reached ({error})"
        if give_up_s is not None and time.monotonic() > begin + give_up_s:
            raise StagingError(why)
        time.sleep(wait)
        wait = min(2 * wait, _MAX_WAIT_S)


def _address() -> str:
    """Return the present address of the server, from a file that the controller keeps up to date.

    Without such a file, return the address with which the job was started.
    """
    given = os.environ["PLIANT_APPLICATION_ADDRESS"]
    try:
        with open(os.environ.get("PLIANT_ADDRESS_FILE", ""), encoding="utf-8") as file:
            return file.read().strip() or given
    except OSError:
        return given


def _channel(target: str) -> grpc.Channel:
    import grpc

    from pliant.protos.grpc_channel_options import channel_options, tls_channel_options

    roots = os.environ.get("PLIANT_ROOTS_FILE", "")
    if not roots:
        return grpc.insecure_channel(target, options=channel_options())
    with open(roots, "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    return grpc.secure_channel(target, credentials, options=tls_channel_options())


def _remove(folder: str) -> None:
    from pliant.protos.daemons.remove_tree import remove_tree

    parent = os.open(os.path.dirname(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remove_tree(os.path.basename(folder), parent, lambda *_: None)
    finally:
        os.close(parent)
    try:
        os.rmdir(os.path.dirname(folder))
    except OSError:
        pass  # other jobs use it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
