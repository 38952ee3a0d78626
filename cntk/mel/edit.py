"""The `edit` action of a config: macros, then a script of MEL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from ...framework.base.errors import FormatError
from ..base.text import is_located
from ..base.write import write_text
from ..config.files import load_resolved
from ..config.parameters import ConfigParameters
from ..ndl.builder import load_macro_files
from ..network.network import Network
from .parse import parse_mel_file
from .run import run_script
from .session import Session, write_with_folder


def edit_section(
    section: ConfigParameters,
    seeds: Iterator[int] | None = None,
    read: Callable[[Path], Network] | None = None,
    write: Callable[[Network, Path], None] = write_with_folder,
    write_text: Callable[[Path, str], None] = write_text,
) -> Session:
    """Run the script `editPath` of a section, with the macros of `ndlMacros`.

    `$name$` in the script is the config's variable. `seeds` counts the random parameters of all
    networks of a run; `read`, `write` and `write_text` replace the files of models and those that
    describe them. The session is returned with its models.

    Raises:
        OpscopeError: a file is missing, the script is wrong, or a command fails.
    """
    session = Session(
        folders=section.search_folders(),
        seeds=seeds if seeds is not None else count(1),
        read=read,
        write=write,
        write_text=write_text,
    )
    if section.string("ndlMacros", ""):
        for ndl in load_macro_files(section["ndlMacros"], section, session.macros):
            session.numbering.script(ndl)
    path = section["editPath"]
    try:
        text = load_resolved(str(path), section)
    except FormatError as error:
        if is_located(error):
            raise
        raise path.error(str(error)) from None
    scripts, script = parse_mel_file(text, Path(str(path)).name)
    for ndl in scripts:
        for macro in ndl.macros:
            session.macros.define(macro)
        session.numbering.script(ndl)
    run_script(session, script)
    return session
