"""Python for WebAssembly under Node: Pyodide, NumPy and the packages that the tests want.

Pyodide and NumPy come from npm, by the versions and hashes of `pyodide/package-lock.json`; the
other packages are wheels of Python alone. All of it lies in `build/wasm`, where later runs find it.
The native library is built where emscripten is; without it NumPy computes.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

from opscope.native import building, units

from .machine import ROOT, Lacking, Machine, from_npm, is_from, unpack_wheels

HOME = ROOT / "build" / "wasm"
COMPILER = "emcc"
SCRIPTS = Path(__file__).with_name("pyodide")
"""How Python for WebAssembly is started; the versions and hashes of its packages."""
_PYTHON = "3.11"  # of this Pyodide, and of this NumPy
_PACKAGES = "protobuf", "click", "tqdm", "threadpoolctl", "pytest", "pytest-xdist"


def prepared(*, native: bool = True) -> Machine:
    """The machine, made where it is not there yet.

    Args:
        native: whether the native library is built, where emscripten is: it takes a minute.

    Raises:
        Lacking: a tool is not there, or a package cannot be had.
    """
    if shutil.which("node") is None:
        raise Lacking("node")
    modules, packages = HOME / "node_modules", HOME / "packages"
    if not (packages.exists() and is_from(SCRIPTS, HOME)):
        from_npm(SCRIPTS, HOME)
        _unpack_numpy(modules, HOME / "numpy")
        unpack_wheels(packages, _PACKAGES, _PYTHON, ["any"])
    python = HOME / "python"
    runs = f'"{SCRIPTS / "python.mjs"}" "{modules / "pyodide"}" "{ROOT}"'
    python.write_text(f'#!/bin/sh\nexec node {runs} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    library = _library() if native else None
    variables = {
        "PYTHONPATH": os.pathsep.join(["/packages", str(packages), str(HOME / "numpy")]),
        "OPSCOPE_CACHE": str(HOME / "cache"),
        "OPSCOPE_CC": "none",
        # The library in the tree is for this processor.
        **({"OPSCOPE_CPU": "none"} if library is None else {}),
    }
    # There is one standard output, which stays as it is; tests leave nothing in the tree.
    options = ["--capture=sys", "-p", "no:cacheprovider"]
    # NumPy has no bfloat16 here, and no function of ours computes with it.
    bf16 = "tests/native/test_bf16_gemm.py", "tests/operators/backends/test_bf16.py"
    options += [f"--ignore={path}" for path in bf16]
    return Machine([str(python)], variables, options, library)


def _unpack_numpy(modules: Path, folder: Path) -> None:
    (package,) = modules.glob("@emscripten-forge/numpy/pkg/*.tar.gz")
    with tarfile.open(package) as archive:
        archive.extractall(folder.with_suffix(".new"), filter="data")
    (folder.with_suffix(".new") / "lib" / f"python{_PYTHON}" / "site-packages").rename(folder)


def _library() -> Path | None:
    """The native library for WebAssembly; None where there is no emscripten."""
    if shutil.which(COMPILER) is None:
        return None
    library = HOME / "opscope_native.so"
    if not (library.exists() and units.digest().encode() in library.read_bytes()):
        building.build(building.Compiler([COMPILER]), library)
    return library
