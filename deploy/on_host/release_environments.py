"""The Python environments on this host: a folder for each release, and a link to one of them.

Daemons run from the folder of their release, not through the link. So what they load later belongs
to the same release, even if the link has been changed meanwhile.
"""

from __future__ import annotations

import compileall
import hashlib
import importlib.util
import io
import json
import os
import shutil
import sys
import tarfile
import venv
import zipfile
from typing import Any, BinaryIO

from pliant.deploy.on_host.host_error import HostError
from pliant.deploy.on_host.manifest import changed_manifest, locked, replace_file
from pliant.deploy.on_host.probe import COMPLETE
from pliant.deploy.on_host.processes import find_processes, is_environment
from pliant.deploy.on_host.wheels import WheelInstaller

#: Name of the archive of compiled modules among the wheels.
COMPILED = "compiled.zip"


def install_environment(arguments: dict[str, Any], payload: BinaryIO) -> dict[str, Any]:
    """Make the Python environment of a release from wheels, which are a tar archive in the payload.

    Args:
        arguments: ``prefix``, the folder of installations, the name of the ``environment``, and
            ``wheels``: the SHA-256 of each wheel by its name.
        payload: the archive.

    Returns:
        An empty record: there is nothing to report.
    """
    with locked(arguments["prefix"]):
        _install(arguments, payload)
    return {}


def _install(arguments: dict[str, Any], payload: BinaryIO) -> None:
    prefix, name = arguments["prefix"], arguments["environment"]
    folder = os.path.join(prefix, name)
    if os.path.exists(os.path.join(folder, COMPLETE)):
        return
    if any(each.environment == folder for each in find_processes(prefix)):
        raise HostError(f"processes run from {folder}, which is not complete", "end them")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _make(folder, arguments["wheels"], payload)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _make(folder: str, wheels: dict[str, str], payload: BinaryIO) -> None:
    # Clear of symbolic links to `python` of another environment.
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = os.path.join(folder, "lib", version, "site-packages")
    installer = WheelInstaller(folder, site)
    missing = dict(wheels)
    compiled = b""
    with tarfile.open(fileobj=payload, mode="r|") as archive:
        for member in archive:
            file = archive.extractfile(member)
            content = file.read() if file else b""
            if member.name == COMPILED:
                compiled = content
                continue
            if missing.pop(member.name, None) != hashlib.sha256(content).hexdigest():
                raise HostError(f"{member.name} changed on its way", "run the command again")
            installer.install(member.name, content)
    if missing:
        raise HostError(f"{', '.join(missing)} did not arrive", "run the command again")
    # The daemons may not write into the folder, and would compile all modules at each start.
    if compiled:
        _write_compiled(site, compiled)
    else:
        compileall.compile_dir(site, quiet=2)
    replace_file(os.path.join(folder, COMPLETE), json.dumps({"wheels": wheels}) + "\n")


def _write_compiled(site: str, content: bytes) -> None:
    """Write the compiled modules (.pyc) of a zip archive next to their sources in ``site``.

    They are used only if they were compiled for this version of Python.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            source = os.path.join(site, *name.split("/"))
            if os.path.isfile(source):
                target = importlib.util.cache_from_source(source)
                os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
                with open(target, "wb") as file:
                    file.write(archive.read(name))


def switch_environment(arguments: dict[str, Any], _payload: BinaryIO) -> dict[str, Any]:
    """Point the link `current` to a Python environment, and record the previous one for a rollback.

    All other environments are removed, except those from which a process runs.

    Args:
        arguments: the name of the ``environment``, and ``prefix``, the folder of installations.

    Returns:
        An empty record: there is nothing to report.
    """
    prefix, name = arguments["prefix"], arguments["environment"]
    with changed_manifest(prefix) as record:
        if record["environment"] != name:
            record["previous"], record["environment"] = record["environment"], name
        draft = os.path.join(prefix, ".current.new")
        if os.path.lexists(draft):
            os.unlink(draft)
        os.symlink(name, draft)
        os.replace(draft, os.path.join(prefix, "current"))
        kept = {record["environment"], record["previous"]}
    used = {os.path.basename(each.environment) for each in find_processes(prefix)}
    for each in os.listdir(prefix):
        if is_environment(each) and each not in kept | used:
            shutil.rmtree(os.path.join(prefix, each), ignore_errors=True)
    return {}
