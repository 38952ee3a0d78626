"""`opscope links`: executables that bear the names of Kaldi's programs, for its recipes."""

from __future__ import annotations

import os
import shlex
import sys

import click

from ...framework.base.errors import FormatError, SaveError
from ...framework.base.files.atomic import write_atomically
from ...framework.base.options.settings import SWITCHES
from ...framework.base.untrusted.opener import file_path, open_file
from .main import kaldi_programs

_MARK = "made by `opscope links`"
_SCRIPT = """#!/bin/sh
# {mark}
{defaults}exec {python} -P -m {module} {name} "$@"
"""


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--force", is_flag=True, help="Replace files that opscope did not make.")
def links(folder: str, force: bool) -> None:
    """Put executables with the names of Kaldi's programs in DIR.

    Put DIR before Kaldi's own folders in PATH, and a recipe runs with opscope's programs. Jobs of a
    cluster get no more than PATH: so the executables know PYTHONPATH and the switches OPSCOPE_...
    that are set now, such as OPSCOPE_PIPES=1, and take them where theirs are not set.
    """
    try:
        os.makedirs(file_path(folder), exist_ok=True)
    except OSError as error:
        raise SaveError(f"cannot make the folder {folder}: {error.strerror}") from error
    names = kaldi_programs()
    paths = [os.path.join(folder, name) for name in names]
    for path in paths:
        if os.path.lexists(path) and not force and not _is_ours(path):
            raise SaveError(f"{path} is there already, and not by opscope; --force replaces it")
    defaults = _defaults()
    for name, path in zip(names, paths, strict=True):
        if os.path.islink(path):
            os.unlink(path)  # else the file it points to would be replaced
        script = _SCRIPT.format(
            mark=_MARK,
            defaults=defaults,
            python=shlex.quote(sys.executable),
            module=__name__.partition(".")[0],
            name=name,
        )
        write_atomically(path, script.encode())
        try:
            os.chmod(path, 0o755)
        except OSError as error:
            raise SaveError(f"cannot make {path} executable: {error.strerror}") from error
    click.echo(f"{len(names)} programs in {folder}: {', '.join(names)}")


def _defaults() -> str:
    """Shell lines that set variables as they are set here, where they are not set."""
    names = [*SWITCHES, "PYTHONPATH"]
    return "".join(
        f'[ -n "${{{name}+x}}" ] || export {name}={shlex.quote(os.environ[name])}\n'
        for name in names
        if name in os.environ
    )


def _is_ours(path: str) -> bool:
    try:
        with open_file(path) as file:
            return _MARK.encode() in file.read(200)
    except (OSError, FormatError):
        return False
