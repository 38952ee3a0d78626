"""Lattices in HTK's text format, with the alignment of each edge.

    N=4 L=5
    I=0 t=0.00
    J=0 S=0 E=1 a=-326.81 l=-5.09 d=:sil,0.03:a-b+c,0.07:

Source: The HTK Book, chapter 20 (standard lattice format); CNTK's
`HTKMLFReader/latticearchive.cpp` (fromhtklattice).
"""

from __future__ import annotations

import math

import numpy as np

from ...framework.base.errors import FormatError, ShapeError, nearest
from ...framework.base.files.atomic import PathLike
from ...framework.base.sequence import offsets_of
from ..base.text import read_text
from .hmms import Hmms
from .lattice import Lattice, LatticeHeader

_PERIOD = 0.01
"""Seconds of a frame."""

_LONG = {"NODES": "N", "LINKS": "L", "time": "t", "START": "S", "END": "E"}
_LONG |= {"acoustic": "a", "language": "l", "div": "d"}


def read_htk_lattice(path: PathLike, hmms: Hmms) -> Lattice:
    """A lattice whose edges tell the phones and their durations.

    Args:
        hmms: the phones.

    Raises:
        FormatError: the file is wrong; the message names file and line.
    """
    text = read_text(path)
    reader = _Reader(str(path), hmms)
    for number, line in enumerate(text.splitlines(), 1):
        fields: dict[str, str] = {}
        for word in line.split():
            name, equals, value = word.partition("=")
            if equals:
                fields[_LONG[name] if name in _LONG else name] = value
        if fields and not line.startswith("#"):
            reader.line(f"{path}:{number}: ", fields)
    return reader.lattice()


class _Reader:
    def __init__(self, path: str, hmms: Hmms) -> None:
        self._path = path
        self._hmms = hmms
        self._sizes: tuple[int, int] | None = None
        self._scales = [1.0, 0.0]
        self._times: list[int] = []
        self._edges: list[tuple[int, int]] = []
        self._scores: list[tuple[float, float]] = []
        self._units: list[list[tuple[int, int]]] = []

    def line(self, place: str, fields: dict[str, str]) -> None:
        if self._sizes is None and "N" in fields and "L" in fields:
            self._sizes = _int(place, fields, "N"), _int(place, fields, "L")
        elif self._sizes is None:
            for at, name in enumerate(("lmscale", "wdpenalty")):
                if name in fields:
                    self._scales[at] = _float(place, fields, name)
        elif "I" in fields:
            self._expect(place, "I", fields, len(self._times))
            self._times.append(self._frame(place, _float(place, fields, "t")))
        elif "J" in fields:
            self._expect(place, "J", fields, len(self._edges))
            self._edge(place, fields)
        else:
            raise FormatError(f"{place}a node (I=) or an edge (J=) was expected")

    def _expect(self, place: str, name: str, fields: dict[str, str], number: int) -> None:
        if _int(place, fields, name) != number:
            raise FormatError(f"{place}{name}={number} was expected, not {fields[name]}")

    def _frame(self, place: str, seconds: float) -> int:
        if not 0 <= seconds < 1e7:
            raise FormatError(f"{place}a time of {seconds} seconds")
        return int(seconds / _PERIOD + 0.5)

    def _edge(self, place: str, fields: dict[str, str]) -> None:
        begin, end = _int(place, fields, "S"), _int(place, fields, "E")
        if not 0 <= begin < end < len(self._times):
            raise FormatError(
                f"{place}an edge from {begin} to {end} does not go to a later one of "
                f"{len(self._times)} nodes"
            )
        units = self._phones(place, fields.get("d", ":"))
        frames = sum(count for _, count in units)
        wanted = self._times[end] - self._times[begin]
        if frames != wanted:
            raise FormatError(f"{place}the phones have {frames} frames, the edge {wanted}")
        self._edges.append((begin, end))
        scores = [_float(place, fields, name) if name in fields else 0.0 for name in ("a", "l")]
        self._scores.append((scores[0], scores[1]))
        self._units.append(units)

    def _phones(self, place: str, text: str) -> list[tuple[int, int]]:
        phones = []
        if not (text.startswith(":") and text.endswith(":")):
            raise FormatError(f"{place}':phone,seconds:...:' was expected, but this is {text!r}")
        for entry in filter(None, text.split(":")):
            name, comma, seconds = entry.partition(",")
            if not comma:
                raise FormatError(f"{place}'phone,seconds' was expected, but this is {entry!r}")
            if name not in self._hmms.numbers:
                hint = nearest(name, self._hmms.names[:1000])
                raise FormatError(f"{place}there is no phone {name!r}{hint}")
            count = self._frame(place, _float(place, {"d": seconds.partition(",")[0]}, "d"))
            phones.append((self._hmms.numbers[name], count))
        return phones

    def lattice(self) -> Lattice:
        sizes = len(self._times), len(self._edges)
        if self._sizes != sizes or not self._times:
            wanted = "no line N= L=" if self._sizes is None else "{} and {}".format(*self._sizes)
            raise FormatError(
                f"{self._path}: {sizes[0]} nodes and {sizes[1]} edges; expected: {wanted}"
            )
        acoustic, language = np.array(self._scores, np.float64).reshape(-1, 2).T
        units = [unit for edge in self._units for unit in edge]
        first = offsets_of([len(edge) for edge in self._units])
        language_scale, penalty = self._scales
        try:
            return Lattice(
                np.array(self._times),
                np.array(self._edges, np.int64).reshape(-1, 2),
                language,
                np.array(units, np.int64).reshape(-1, 2),
                first,
                None,
                acoustic,
                LatticeHeader(language_scale, penalty, _PERIOD),
            )
        except ShapeError as error:
            raise FormatError(f"{self._path}: {error}") from None


def _int(place: str, fields: dict[str, str], name: str) -> int:
    if not fields.get(name, "").isascii() or not fields.get(name, "").isdecimal():
        given = f", not {fields[name]!r}" if name in fields else ""
        raise FormatError(f"{place}{name}= and a number was expected{given}")
    return int(fields[name][:18])


def _float(place: str, fields: dict[str, str], name: str) -> float:
    try:
        value = float(fields[name])
    except (KeyError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        given = f", not {fields[name]!r}" if name in fields else ""
        raise FormatError(f"{place}{name}= and a number was expected{given}")
    return value
