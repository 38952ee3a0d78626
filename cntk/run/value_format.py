"""Values of nodes as text: the `format` section of write.

Source: CNTK's `ComputationNetworkLib/ComputationNode.cpp` (WriteMinibatchWithFormatting,
WriteFormattingOptions).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.values import unicode_text
from ..base.text import read_text
from ..config.parameters import ConfigParameters
from .values import NodeValue

_ESCAPES = (("\\n", "\n"), ("\\r", "\r"), ("\\t", "\t"), ("\\s", " "))
_PRECISION = re.compile(r"[-+ #0]{,5}\d{,3}(\.\d{1,3})?")


@dataclass(frozen=True)
class WriteFormat:
    """How values are written.

    Strings may hold `\\n`, `\\r`, `\\t`, `\\s` (a blank), `%s` (the node's name), `%n` (the number
    of the minibatch); prologue of sequences and separator of samples also `%x` (the shape) and `%d`
    (the number of the sequence).

    Attributes:
        kind: "real"; "category": the number or label of the largest element; "sparse": elements
            that are not 0, with their places.
        labels: names of categories.
        transpose: a line for each sample, not for each element.
        prologue, epilogue: texts before and after everything.
        sequence_separator, sequence_prologue, sequence_epilogue: around sequences.
        element_separator, sample_separator: between numbers of a line, between lines.
        precision: between % and f of C's printf.
    """

    kind: str = "real"
    labels: Sequence[str] = field(default_factory=list)
    transpose: bool = True
    prologue: str = ""
    epilogue: str = ""
    sequence_separator: str = ""
    sequence_prologue: str = ""
    sequence_epilogue: str = "\n"
    element_separator: str = " "
    sample_separator: str = "\n"
    precision: str = ""

    @classmethod
    def of(cls, section: ConfigParameters) -> WriteFormat:
        """The format that a write command asks for.

        Raises:
            FormatError: it is none, or the file of labels cannot be read.
        """
        if "format" not in section:
            return cls()
        part = section.section("format")
        kind = "real"
        labels = []
        if part.has("type"):
            kind = part.string("type")
            if kind not in ("real", "category", "sparse"):
                raise part["type"].error("write: type must be 'real', 'category', or 'sparse'")
            part.only_if(kind != "real", "the type is real", "labelMappingFile")
            path = part.string("labelMappingFile", "") if kind != "real" else ""
            labels = _labels(part, path) if path else []
        part.only_if(part.has("type"), "there is no type", "labelMappingFile")
        precision = part.string("precisionFormat", "")
        if not _PRECISION.fullmatch(precision):
            raise part["precisionFormat"].error(
                f"{precision!r} is no precision of printf, such as '.8' or '8.3'"
            )
        default = cls()
        return cls(
            kind=kind,
            labels=labels,
            transpose=part.bool("transpose", True),
            prologue=part.string("prologue", ""),
            epilogue=part.string("epilogue", ""),
            sequence_separator=part.string("sequenceSeparator", ""),
            sequence_prologue=part.string("sequencePrologue", ""),
            sequence_epilogue=part.string("sequenceEpilogue", default.sequence_epilogue),
            element_separator=part.string("elementSeparator", default.element_separator),
            sample_separator=part.string("sampleSeparator", default.sample_separator),
            precision=precision,
        )


def _labels(part: ConfigParameters, path: str) -> list[str]:
    try:
        return read_labels(path)
    except FormatError as error:
        raise part["labelMappingFile"].error(str(error)) from None


def read_labels(path: str) -> list[str]:
    """The lines of a file of labels.

    Raises:
        FormatError: it cannot be read, or holds an empty line.
    """
    lines = unicode_text(read_text(path), path).split("\n")
    if lines and not lines[-1]:
        lines.pop()
    if "" in lines:
        raise FormatError(f"{path}:{lines.index('') + 1}: an empty line in a file of labels")
    return lines


class NodeWriter:
    """Writes the values of one node.

    Args:
        name: of the node.
        shape: of its samples, in CNTK's order.
        most_elements, most_samples: how many of each are shown; of the others only how many they
            are, unless that is one. None: all.
        letter: of printf, for a number; by default f, and d for the number of a category.

    Attributes:
        unmapped: whether there are labels, but not as many as the node has elements.
    """

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        form: WriteFormat,
        *,
        most_elements: int | None = None,
        most_samples: int | None = None,
        letter: str = "",
    ) -> None:
        self.name = name
        self.shape = tuple(shape)
        self.form = form
        self._most = most_elements, most_samples
        size = math.prod(self.shape)
        mapped = bool(form.labels) and len(form.labels) in (size, self.shape[0] if shape else 1)
        self._labels = form.labels if mapped else []
        self.unmapped = form.kind == "category" and bool(form.labels) and not mapped
        real = form.kind != "category"
        self._value = f"%{form.precision}{letter or ('f' if real else 's' if mapped else 'd')}"

    def text(self, value: NodeValue, number: int) -> str:
        """The text of a minibatch, counted from 0."""
        form = self.form
        separator = self.fragment(form.sequence_separator, number)
        prologue = self.fragment(form.sequence_prologue, number)
        epilogue = self.fragment(form.sequence_epilogue, number)
        between = self.fragment(form.element_separator, number)
        lines = self.fragment(form.sample_separator, number)
        out: list[str] = []
        for sequence, rows in enumerate(_sequences(value)):
            marks = (("%x", " ".join(map(str, (*self.shape, len(rows))))), ("%d", str(sequence)))
            if sequence:
                out.append(separator)
            out.append(_replaced(prologue, marks))
            out.append(self._sequence(rows, between, lines, _replaced(lines, marks)))
            out.append(epilogue)
        return "".join(out)

    def fragment(self, text: str, number: int) -> str:
        """A string of the format, for minibatch `number`."""
        return _replaced(text, (*_ESCAPES, ("%s", self.name), ("%n", str(number))))

    def _sequence(self, rows: np.ndarray, between: str, plain: str, lines: str) -> str:
        if self.form.kind == "category":
            rows = _largest(rows)[:, None]
            if self._labels:
                rows = np.array(self._labels, object)[rows % len(self._labels)]
        if self.form.kind == "sparse":
            return (plain if self.form.transpose else between).join(self._elements(rows))
        table = rows
        most = self._most
        if not self.form.transpose:
            table = rows.transpose()
            most = most[::-1]
        (width, more), (height, below) = map(_shown, reversed(table.shape), most)
        pattern = between.replace("%", "%%").join([self._value] * width + more)
        texts = [pattern % tuple(row) for row in table[:height, :width].tolist()]
        if not self.form.transpose and len(self.shape) > 1 and self.form.kind != "category":
            texts = [f"{place}\t{text}" for place, text in zip(self._places(), texts, strict=False)]
        return lines.join(texts + below)

    def _places(self) -> Iterator[str]:
        """`[1,0]`: the indices of each element of a sample."""
        for number in range(math.prod(self.shape)):
            yield f"[{','.join(map(str, np.unravel_index(number, self.shape, order='F')))}]"

    def _elements(self, rows: np.ndarray) -> Iterator[str]:
        """Elements that are not 0; the number 1 is left out, its place says enough."""
        order = rows if not self.form.transpose else rows.transpose()
        for first, second in zip(*np.nonzero(order), strict=True):
            element, sample = (first, second) if self.form.transpose else (second, first)
            value = float(rows[sample, element])
            shown = "" if value == 1 else self._value % value
            yield shown + self._place(int(element), int(sample), len(rows))

    def _place(self, element: int, sample: int, samples: int) -> str:
        parts = []
        for size in self.shape:
            index = element % size
            named = f"={self.form.labels[index]}" if size == len(self.form.labels) else ""
            parts.append(f"{index}{named}")
            element //= size
        step = f";{sample}" if samples > 1 else ""
        return f"[{','.join(parts)}{step}]"


def _sequences(value: NodeValue) -> Iterator[np.ndarray]:
    """The rows of each sequence as matrices, [samples, elements]; -0 becomes 0."""
    data = value.data
    if value.offsets is None:  # its columns are the samples
        columns = math.prod(data.shape[:-1]) if data.ndim else 1
        yield data.reshape(columns, -1) + 0.0
        return
    rows = data.reshape(len(data), -1) + 0.0
    for first, last in zip(value.offsets[:-1], value.offsets[1:], strict=True):
        yield rows[first:last]


def _shown(count: int, most: int | None) -> tuple[int, list[str]]:
    """How many of `count` are shown, and the text in place of the others."""
    if most is None or count <= most + 1:
        return count, []
    return most, [f"...+{count - most}"]


def _largest(rows: np.ndarray) -> np.ndarray:
    """The last of the largest elements of each row."""
    return rows.shape[1] - 1 - rows[:, ::-1].argmax(1)


def _replaced(text: str, marks: Sequence[tuple[str, str]]) -> str:
    for mark, value in marks:
        text = text.replace(mark, value)
    return text
