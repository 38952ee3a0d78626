"""Compiling `proto/*.proto` into Python modules."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from .process import ROOT, run


def compile_protos(python: str | Path = sys.executable, root: Path = ROOT) -> list[Path]:
    """Compile `proto/*.proto` into `_pb2.py` and `_pb2.pyi` beside them.

    `setup.py` and `build.py proto` call this, so every kind of install and build makes the same
    files. protoc gets the sources as `opscope/proto/*.proto`: under these names they are entered in
    protobuf's pool, which a process shares with all its libraries, and the classes know their real
    module.

    Args:
        python: an interpreter that has grpcio-tools.
        root: the root of the repository.

    Returns:
        The generated files; one whose content has not changed is left alone.

    Raises:
        StepError: a file does not compile.
    """
    folder = root / "proto"
    sources = sorted(source.name for source in folder.glob("*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        outputs = [f"--python_out={scratch}", f"--pyi_out={scratch}"]
        names = [f"opscope/proto/{name}" for name in sources]
        # -P: the folders of this tree must not stand in for installed packages.
        protoc = [python, "-P", "-m", "grpc_tools.protoc", f"-Iopscope/proto={folder}"]
        run([*protoc, *outputs, *names], "compiling proto/*.proto", quiet=True, cwd=scratch)
        generated = []
        for made in sorted(Path(scratch, "opscope", "proto").iterdir()):
            target = folder / made.name
            if not target.exists() or target.read_bytes() != made.read_bytes():
                # Renamed into place: a process that imports it meanwhile sees all or nothing.
                fresh = target.with_name(f"{target.name}.{os.getpid()}")
                shutil.copyfile(made, fresh)
                os.replace(fresh, target)
            generated.append(target)
    return generated


def generated_exist(root: Path = ROOT) -> bool:
    """Whether every proto has its generated module."""
    sources = (root / "proto").glob("*.proto")
    return all(source.with_name(f"{source.stem}_pb2.py").exists() for source in sources)
