"""Make the stubs of every ``*.proto`` in this folder: ``python -m pliant.protos.generate``.

With ``--check`` nothing is written. Then stubs that are outdated, missing or without a ``*.proto``
are printed, and the exit code is 1. The tools are those of the extra ``dev``, with fixed versions,
because the same source must give the same bytes everywhere.

protoc is started with the option ``-P`` of Python. Without it, Python would find the top-level
folders of this repository before the installed packages. The files get the virtual path
``pliant/protos``, so that imports in the stubs are right after installation.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
VIRTUAL = "pliant/protos"
STUBS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


class GenerateError(Exception):
    """The stubs could not be made; the text has the reason and a remedy."""


def generate(folder: Path) -> dict[str, bytes]:
    """Generate the Python stubs of the ``*.proto`` files in a folder; return them by file name."""
    sources = sorted(path.name for path in folder.glob("*.proto"))
    if not sources:
        return {}
    with tempfile.TemporaryDirectory(prefix="pliant-stubs-") as name:
        out = Path(name)
        _protoc(folder, sources, out)
        serving = _files_with_service(out / "descriptors")
        return {
            path.name: path.read_bytes()
            for path in sorted((out / VIRTUAL).iterdir())
            if "_pb2_grpc." not in path.name or path.name.split("_pb2_grpc.")[0] in serving
        }


def differences(folder: Path, wanted: dict[str, bytes]) -> dict[str, str]:
    """Return what is wrong with the stubs (generated Python files) of a folder, by file name.

    For example, a stub is ``missing``. Stubs that are as they should be are left out.
    """
    present = {path.name: path for pattern in STUBS for path in folder.glob(pattern)}
    faults = dict.fromkeys(present.keys() - wanted.keys(), "has no .proto or service")
    for name, content in wanted.items():
        if name not in present:
            faults[name] = "missing"
        elif present[name].read_bytes() != content:
            faults[name] = "stale"
    return dict(sorted(faults.items()))


def write(folder: Path, wanted: dict[str, bytes]) -> dict[str, str]:
    """Write missing or wrong stubs, and remove others, so that a folder has those in ``wanted``.

    Args:
        folder: the folder.
        wanted: the content of each stub (generated Python file), by file name.

    Returns:
        What was wrong before with each stub, as `differences` returns it.
    """
    faults = differences(folder, wanted)
    for name in faults:
        if name in wanted:
            (folder / name).write_bytes(wanted[name])
        else:
            (folder / name).unlink()
    return faults


def main(argv: list[str] | None = None) -> int:
    """Run the command line tool and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m pliant.protos.generate",
        description="Make the stubs of the wire contracts.",
    )
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if stale")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the .proto files are")
    options = parser.parse_args(argv)
    try:
        wanted = generate(options.folder)
    except GenerateError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.check:
        faults = differences(options.folder, wanted)
        for name, fault in faults.items():
            print(f"{name}: {fault}; run: make protos", file=sys.stderr)
        return 1 if faults else 0
    for name in write(options.folder, wanted):
        print(name)
    return 0


def _protoc(folder: Path, sources: list[str], out: Path) -> None:
    plugin = Path(sysconfig.get_path("scripts"))
    for tool in ("protoc-gen-mypy", "protoc-gen-mypy_grpc"):
        if not (plugin / tool).exists():
            raise GenerateError(f"{tool} is not in {plugin}; install the extra 'dev': make venv")
    command = [
        *(sys.executable, "-P", "-m", "grpc_tools.protoc"),
        f"--proto_path={VIRTUAL}={folder}",
        f"--plugin=protoc-gen-mypy={plugin / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={plugin / 'protoc-gen-mypy_grpc'}",
        f"--python_out={out}",
        f"--mypy_out=quiet:{out}",
        f"--grpc_python_out={out}",
        f"--mypy_grpc_out=quiet:{out}",
        f"--descriptor_set_out={out / 'descriptors'}",
        *(f"{VIRTUAL}/{source}" for source in sources),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise GenerateError(f"protoc failed:\n{done.stderr.strip()}")
    if "warning:" in done.stderr:
        raise GenerateError(f"protoc warned:\n{done.stderr.strip()}")


def _files_with_service(descriptors: Path) -> set[str]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = FileDescriptorSet.FromString(descriptors.read_bytes()).file
    return {Path(file.name).stem for file in files if file.service}


if __name__ == "__main__":
    raise SystemExit(main())
