"""LUSequenceWriter and LMSequenceWriter: the best labels of the tokens of each sentence, a line for
each sentence.

    writer = [ writerType = "LUSequenceWriter" ; outputNodeNames = "outputs"
        outputs = [ file = "tags.txt" ; token = "labels.txt" ; nbest = 1 ] ]

`token` names a list of labels, for LMSequenceWriter one of words with their classes. Source: CNTK's
`LUSequenceReader/LUSequenceWriter.cpp`, `LMSequenceReader/SequenceWriter.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.files.atomic import check_writable, make_folder_of, write_atomically
from ...config.parameters import ConfigParameters
from ..base.data import Samples
from ..base.words import read_lines, read_word_classes
from ..base.writer import DataWriter
from ..opening import Opening


def lu_sequence_writer(config: ConfigParameters) -> Opening[DataWriter]:
    """The writer of a section with writerType LUSequenceWriter.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    return _writer(config, _listed)


def lm_sequence_writer(config: ConfigParameters) -> Opening[DataWriter]:
    """The writer of a section with writerType LMSequenceWriter.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    unknown = config.string("unk", "<unk>")

    def words(path: str) -> list[str]:
        names = read_word_classes(path, unknown)[0].names()
        return [names[number] for number in range(len(names))]

    return _writer(config, words)


def _listed(path: str) -> list[str]:
    labels = " ".join(read_lines(path)).split()
    if not labels:
        raise FormatError(f"{path}: the list is empty")
    return labels


def _writer(config: ConfigParameters, labels_of: Callable[[str], list[str]]) -> Opening[DataWriter]:
    nodes = {str(node): node for node in config.array("outputNodeNames")}
    names = list(nodes)
    if not names:
        raise config["outputNodeNames"].error("a writer needs the name of a node")
    files, tokens, counts, needed = [], [], [], []
    for name in names:
        part = config.section(name)
        files.append(part.string("file"))
        tokens.append(part.string("token"))
        needed += part.files("token")
        counts.append(part.int("nbest", 1))
        if counts[-1] < 1:
            raise part["nbest"].error(f"{counts[-1]} best labels cannot be written")

    def opened() -> DataWriter:
        return LabelWriter(names, files, [labels_of(token) for token in tokens], counts)

    return Opening(opened, needed, nodes={name: (node, None) for name, node in nodes.items()})


class LabelWriter(DataWriter):
    """Writes labels. The files are complete once the writer is closed.

    Args:
        names: of the nodes.
        files: of each.
        labels: by their numbers, for each.
        counts: how many of the best labels are written for a token, best first; those whose value
            is 0 are left out where there are several.

    Raises:
        SaveError: a file cannot be written.
    """

    def __init__(
        self, names: list[str], files: list[str], labels: list[list[str]], counts: list[int]
    ) -> None:
        self.names = list(names)
        self._parts = dict(zip(names, zip(files, labels, counts, strict=True), strict=True))
        self.files = list(files)
        self._lines: dict[str, list[str]] = {}
        for path in files:
            make_folder_of(path)
            check_writable(path)
            self._lines[path] = []

    def save_data(self, values: Mapping[str, Samples]) -> None:
        """See `DataWriter.save_data`."""
        for name in self.names:
            path, labels, count = self._parts[name]
            samples = values[name]
            rows = samples.values.reshape(len(samples.values), -1)[:, : len(labels)]
            best = _best(rows, count)
            for first, last in zip(samples.begin[:-1], samples.begin[1:], strict=True):
                words = [labels[n] for row in best[first:last] for n in row]
                self._lines[path].append("".join(f"{word} " for word in words) + "\n")

    def discard(self) -> None:
        """See `DataWriter.discard`: no file is written."""

    def close(self) -> None:
        """See `DataWriter.close`."""
        for path, lines in self._lines.items():
            write_atomically(path, "".join(lines).encode("utf-8", "surrogateescape"))


def _best(rows: np.ndarray, count: int) -> list[list[int]]:
    """The numbers of the largest values of each row."""
    if count == 1:
        return rows.argmax(axis=1)[:, None].tolist()
    order = np.argsort(-rows, axis=1, kind="stable")[:, :count]
    return [
        [n for n in ranks if row[n] != 0] for ranks, row in zip(order.tolist(), rows, strict=True)
    ]
