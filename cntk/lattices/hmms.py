"""Hidden Markov models of phones: the states that lattices are aligned with.

    a-b+c  T_b  b_s2 b_s3 b_s4            a line of `phoneFile`: phone, transitions, states
    T_b  3  1 0 0 0  .6 .4 0 0  ...       a line of `transPFile`: name, states, probabilities

The probabilities are rows: from the entry and from each state in turn, to each state and to the
exit. Source: CNTK's `Common/Include/simplesenonehmm.h`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError, nearest
from ...framework.base.files.atomic import PathLike
from ...framework.base.untrusted.values import check_fill
from ..base.text import read_text

SILENCE, PAUSE = "sil", "sp"
"""Phones that lattices treat by themselves: silence, and the short pause at the end of a word."""

_LEAST = 1e-10  # smaller probabilities are none


@dataclass(frozen=True, eq=False)
class Hmms:
    """Phones by number. Phones of the same states and transitions have one number.

    Attributes:
        names: of each, the first one where it has several.
        numbers: of each name.
        states: rows of the net's output, int64, [phones, most states]; -1 after the last one.
        transitions: log probabilities, [phones, most + 1, most + 1]: row 0 from the entry, row
            1 + i from state i; column j to state j, the last column to the exit. -inf where
            there is no way.
    """

    names: Sequence[str]
    numbers: Mapping[str, int]
    states: np.ndarray
    transitions: np.ndarray

    @classmethod
    def read(cls, phones: PathLike, transitions: PathLike, states: Sequence[str]) -> Hmms:
        """From two files and the names of the states.

        Raises:
            FormatError: the file is wrong; the message names file and line.
        """
        matrices = _read_transitions(transitions)
        rows = {name: row for row, name in enumerate(states)}
        names: list[str] = []
        numbers: dict[str, int] = {}
        kinds: dict[tuple, int] = {}
        for place, words in _lines(phones):
            if len(words) < 3:
                raise FormatError(f"{place}a phone, its transitions and states were expected")
            name, kind, *own = words
            if kind not in matrices:
                hint = nearest(kind, matrices)
                raise FormatError(f"{place}there are no transitions {kind!r}{hint}")
            if len(own) != len(matrices[kind]) - 1:
                raise FormatError(
                    f"{place}{len(own)} states; the transitions {kind!r} have "
                    f"{len(matrices[kind]) - 1}"
                )
            unknown = next((state for state in own if state not in rows), None)
            if unknown is not None:
                hint = nearest(unknown, rows)
                raise FormatError(f"{place}there is no state {unknown!r}{hint}")
            if name in numbers:
                raise FormatError(f"{place}the phone {name!r} is there already")
            numbers[name] = kinds.setdefault((kind, *(rows[state] for state in own)), len(kinds))
            if numbers[name] == len(names):
                names.append(name)
        if not names:
            raise FormatError(f"{phones}: there are no phones")
        return cls._of(names, numbers, [(matrices[kind], own) for kind, *own in kinds])

    @classmethod
    def of_states(cls, count: int) -> Hmms:
        """A phone for each state, which it stays in at no cost: for lattices that are aligned with
        states already."""
        names = [str(state) for state in range(count)]
        free = np.zeros((2, 2))
        free[0, 1] = -np.inf
        parts = [(free, [state]) for state in range(count)]
        return cls._of(names, {name: at for at, name in enumerate(names)}, parts)

    @classmethod
    def _of(cls, names: list[str], numbers: dict[str, int], parts: list[tuple]) -> Hmms:
        most = max((len(own) for _, own in parts), default=1)
        check_fill((len(parts), most + 1, most + 1), 8, "the transitions of all phones")
        states = np.full((len(parts), most), -1, np.int64)
        transitions = np.full((len(parts), most + 1, most + 1), -np.inf)
        for at, (matrix, own) in enumerate(parts):
            count = len(own)
            states[at, :count] = own
            transitions[at, : count + 1, :count] = matrix[:, :-1]
            transitions[at, : count + 1, -1] = matrix[:, -1]
        return cls(tuple(names), numbers, states, transitions)

    def __len__(self) -> int:
        return len(self.names)


def _read_transitions(path: PathLike) -> dict[str, np.ndarray]:
    """Log probabilities, [states + 1, states + 1], by name."""
    transitions: dict[str, np.ndarray] = {}
    for place, words in _lines(path):
        try:
            count = int(words[1])
            values = np.array(words[2:], np.float64)
        except (IndexError, ValueError):
            raise FormatError(
                f"{place}a name, a number of states and probabilities were expected"
            ) from None
        if not 0 < count <= len(values) or len(values) != (count + 1) ** 2:
            raise FormatError(
                f"{place}{len(values)} probabilities; {count} states have (states + 1) squared"
            )
        if not (values <= 1 + 1e-3).all():
            raise FormatError(f"{place}a probability is at most 1, not {values.max():g}")
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(values > _LEAST, np.log(np.maximum(values, 0)), -np.inf)
        transitions[words[0]] = logs.reshape(count + 1, count + 1)
    return transitions


def _lines(path: PathLike) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.split()
        if words:
            yield f"{path}:{number}: ", words
