"""An aarch64 Python under qemu, with the packages that the tests want and our library.

Python is unpacked from Debian's packages for arm64, whatever this system has installed; packages
come as wheels for aarch64. All of it lies in `build/aarch64`, where later runs find it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from opscope.native import building

from .machine import ROOT, Lacking, Machine, run, unpack_wheels

HOME = ROOT / "build" / "aarch64"
COMPILER, QEMU = "aarch64-linux-gnu-gcc", "qemu-aarch64"
_TOOLS = COMPILER, QEMU, "apt-get", "dpkg-deb"
_DEBIAN = "python3", "libstdc++6"
_PACKAGES = (
    *("numpy", "protobuf", "click", "tqdm", "threadpoolctl", "ml_dtypes"),
    *("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "scipy"),
)
_APT = """
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State "{home}/apt";
Dir::State::status "{home}/apt/status";
Dir::Cache "{home}/apt";
"""
_PLATFORMS = "any", *(f"manylinux_2_{minor}_aarch64" for minor in (17, 26, 27, 28))


def prepared() -> Machine:
    """The machine, made where it is not there yet; the library is built anew.

    Raises:
        Lacking: a tool is not there, or a package cannot be had.
    """
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise Lacking(", ".join(missing))
    root, packages = HOME / "root", HOME / "packages"
    if not root.exists():
        _unpack_python(root)
    python = next(root.glob("usr/bin/python3.??"))
    if not packages.exists():
        unpack_wheels(packages, _PACKAGES, python.name.removeprefix("python"), _PLATFORMS)
    if not (packages / "opscope").is_symlink():
        (packages / "opscope").symlink_to(ROOT)
    library = HOME / "opscope_native.so"
    building.build(building.Compiler([COMPILER]), library)
    # Programs that a process starts run by themselves: this one compiles loops for aarch64.
    compiler = HOME / "bin" / "cc"
    compiler.parent.mkdir(exist_ok=True)
    if not compiler.exists():
        compiler.symlink_to(str(shutil.which(COMPILER)))
    # Python starts others by the name that it has itself: that of a script, which runs qemu.
    script = compiler.with_name("python")
    script.write_text(f'#!/bin/sh\nexec {QEMU} -0 "$0" {python} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    variables = {
        "PYTHONHOME": str(root / "usr"),
        "PYTHONPATH": str(packages),
        "QEMU_LD_PREFIX": str(root),
        "PATH": f"{compiler.parent}{os.pathsep}{os.environ['PATH']}",
        "OPSCOPE_CACHE": str(HOME / "cache"),
    }
    return Machine([str(script)], variables, ["--timeout", "1200"], library)


def _unpack_python(root: Path) -> None:
    for folder in ("apt/lists/partial", "apt/archives/partial"):
        (HOME / folder).mkdir(parents=True, exist_ok=True)
    (HOME / "apt" / "status").touch()  # nothing is installed: all that Python needs comes along
    config = _APT.replace("{home}", str(HOME))
    (HOME / "apt.conf").write_text(config, encoding="utf-8")
    where = {"APT_CONFIG": str(HOME / "apt.conf")}
    run("apt-get", "update", **where)
    install = "install", "-y", "--no-install-recommends", "--download-only"
    run("apt-get", *install, *_DEBIAN, **where)
    making = HOME / "root.new"
    for package in sorted((HOME / "apt" / "archives").glob("*.deb")):
        run("dpkg-deb", "-x", package, making)
    making.rename(root)
