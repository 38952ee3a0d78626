"""BinaryWriter: values of nodes in a file of sections, which BinaryReader reads.

    writer = [ writerType = "BinaryWriter" ; wfile = "features.bin"
        out = [ dim = 10 ; sectionType = data ] ]

A section for each node; `wrecords`, `wsize` and `windowSize` are of no use, as the file is as large
as its records. Source: CNTK's `BinaryReader/BinaryWriter.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ....framework.base.errors import ShapeError
from ....framework.base.files.atomic import check_writable
from ...config.parameters import ConfigParameters
from ...config.value import ConfigValue
from ..base.data import Samples
from ..base.section_file import DATA, LABELS, REGRESSION, Section, write_sections
from ..base.sections import complaint, precision, sections_with
from ..base.writer import DataWriter
from ..opening import Opening

_MOST_NUMBERS = 2**31 - 1  # in a sample


def binary_writer(config: ConfigParameters) -> Opening[DataWriter]:
    """The writer of a section with writerType BinaryWriter.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    parts = sections_with(config, "sectionType")
    if not parts:
        message = (
            "the section of a BinaryWriter (the default writerType) has none with a sectionType"
        )
        raise complaint(config, message)
    dims: dict[str, int] = {}
    regression: set[str] = set()
    for name, part in parts:
        kind = part.string("sectionType").lower()
        dims[name] = part.size("dim", 1)
        if dims[name] > _MOST_NUMBERS:
            raise part["dim"].error(f"dim is at most {_MOST_NUMBERS}, not {dims[name]}")
        if kind == "labels":
            if not part.match("labelType", "regression"):
                raise part["labelType"].error(
                    "values of nodes are no categories: labelType is Regression"
                )
            regression.add(name)
        elif kind != "data":
            raise part["sectionType"].error("sectionType is data or labels")
    path = config.string("wfile")
    dtype = precision(config)
    return Opening(
        lambda: BinaryWriter(path, dims, regression, dtype),
        nodes={name: (ConfigValue(part.text, part.path), dims[name]) for name, part in parts},
    )


class BinaryWriter(DataWriter):
    """Writes sections of data. The file is complete once the writer is closed.

    Args:
        path: of the file.
        dims: numbers of a sample, node by node.
        regression: the nodes whose values are labels.
        dtype: of the numbers in the file.

    Raises:
        SaveError: the file cannot be written.
    """

    def __init__(
        self, path: str, dims: Mapping[str, int], regression: set[str], dtype: np.dtype
    ) -> None:
        check_writable(path)
        self.names = list(dims)
        self.files = [path]
        self._path = path
        self._dims = dims
        self._regression = regression
        self._dtype = dtype
        self._rows: dict[str, list[np.ndarray]] = {name: [] for name in dims}

    def save_data(self, values: Mapping[str, Samples]) -> None:
        """See `DataWriter.save_data`."""
        for name, dim in self._dims.items():
            rows = values[name].values
            width = rows.shape[1]
            if width != dim:
                raise ShapeError(f"{self._path}: {name} has {width} values, its dim is {dim}")
            self._rows[name].append(rows.astype(self._dtype))

    def discard(self) -> None:
        """See `DataWriter.discard`: no file is written."""

    def close(self) -> None:
        """See `DataWriter.close`."""
        sections = []
        for name, dim in self._dims.items():
            rows = np.concatenate(self._rows[name] or [np.zeros((0, dim), self._dtype)])
            if name in self._regression:
                sections.append(Section(name, LABELS, rows, REGRESSION, dim))
            else:
                sections.append(Section(name, DATA, rows))
        records = len(sections[0].values)
        write_sections(self._path, sections, records)
