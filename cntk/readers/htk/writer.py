"""HTKMLFWriter: one HTK parameter file for each utterance, named by a list.

    writer = [ writerType = "HTKMLFWriter" ; outputNodeNames = "scaled"
        scaled = [ dim = 10 ; scpFile = "out.scp" ; type = "Real" ] ]

Source: CNTK's `HTKMLFReader/HTKMLFWriter.cpp`.
"""

from __future__ import annotations

import logging
from typing import TypeAlias

import numpy as np

from ....framework.base.files.atomic import make_folder_of
from ....framework.base.untrusted.roots import current
from ...base.text import read_text
from ...config.parameters import ConfigParameters
from ...config.value import ConfigValue
from ..base.htk_files import write_htk
from ..base.writer import DataWriter, UtteranceWriter
from ..opening import Opening

_log = logging.getLogger(__name__)

_PERIOD = 100000


def htk_mlf_writer(config: ConfigParameters) -> Opening[DataWriter]:
    """The writer of a section with writerType HTKMLFWriter.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    sections = output_sections(config)
    names = list(sections)
    dims = [dim for _, _, dim, _ in sections.values()]
    lists = [path for *_, path in sections.values()]

    def opened() -> DataWriter:
        files = [_lines(str(path)) for path in lists]
        for path, paths in zip(lists, files, strict=True):
            if len(paths) != len(files[0]):
                raise path.error(
                    f"the list names {len(paths)} files, the list of {names[0]} {len(files[0])}"
                )
        return HtkWriter(names, dims, files)

    given = {name: (node, dim) for name, (_, node, dim, _) in sections.items()}
    return Opening(opened, lists, nodes=given)


OutputSection: TypeAlias = tuple[ConfigParameters, ConfigValue, int, ConfigValue]
"""A section, the value that names its node, its `dim`, and the value that names its list."""


def output_sections(config: ConfigParameters) -> dict[str, OutputSection]:
    """What is said of each node in `outputNodeNames`, by its name.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    sections: dict[str, OutputSection] = {}
    for node in config.array("outputNodeNames"):
        part = config.section(str(node))
        if part.string("type", "Real").lower() != "real":
            raise part["type"].error("outputs are of the type 'Real'")
        dim = part.size("dim")
        key = "file" if part.has("file") else "scpFile"
        part.string(key)
        sections[str(node)] = part, node, dim, part.files(key)[0]
    if not sections:
        raise config["outputNodeNames"].error("a writer needs the name of a node")
    return sections


def _lines(path: str) -> list[str]:
    lines = [line.strip() for line in read_text(path).splitlines()]
    confinement = current()
    if confinement is not None:
        for number, line in enumerate(lines, 1):
            confinement.check(line, f"{path}:{number}")
    return list(filter(None, lines))


class HtkWriter(UtteranceWriter):
    """Writes each sequence into the next file of a list.

    Args:
        names: of the nodes.
        dims: of each.
        files: paths for each node, one an utterance.
    """

    def __init__(self, names: list[str], dims: list[int], files: list[list[str]]) -> None:
        super().__init__(dict(zip(names, dims, strict=True)), files, "names {} files")
        self.files = [path for paths in files for path in paths]

    def _write(self, name: str, entry: str, rows: np.ndarray) -> None:
        bad = int(np.count_nonzero(~np.isfinite(rows)))
        if bad:
            _log.warning("%s: %d numbers are not finite", entry, bad)
        make_folder_of(entry)
        write_htk(entry, rows, _PERIOD)
