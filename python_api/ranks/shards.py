"""A rank's part of a minibatch, and a whole minibatch's numbers from the parts.

Rows are cut in order: of n rows, rank r of R gets n r / R to n (r + 1) / R. Of sequences these are
the outermost ones; an array with a row for each of their steps is cut where they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.backend import array_module
from ...framework.base.errors import ShapeError, VariableError, nearest
from ...framework.base.sequence import Sequences
from ...framework.ir.desc import PARAMETER, STATE
from ...framework.ir.op_list import OpList
from ...framework.runtime.feeding import rows_and_offsets

_REDUCED = {"reduce_sum": np.add, "reduce_max": np.maximum, "reduce_min": np.minimum}
"""Operators whose numbers over the parts give that over the whole -> how."""
_OWN = "or give each rank its own minibatches, shard=False"


class Shards:
    """Cuts the minibatches of a net for rank `rank` of `size`."""

    def __init__(self, net: OpList, rank: int, size: int) -> None:
        self._vars = {var.name: var for var in net.vars}
        self._rank = rank
        self._size = size

    def part(self, batch: Mapping[Any, Any], where: str) -> dict[str, Any]:
        """This rank's rows of a minibatch; there may be none.

        Raises:
            ShapeError: arrays that are not cut alike, or none that can be cut.
            VariableError: no mapping, or an unknown name.
        """
        if not isinstance(batch, Mapping):
            raise VariableError(f"{where}: a minibatch maps names to arrays, not {batch!r}")
        given = {str(name): self._rows(str(name), value, where) for name, value in batch.items()}
        cut = {name: value for name, value in given.items() if self._is_cut(name, value)}
        if not cut:
            raise ShapeError(
                f"{where}: no input has a variable number of rows, so that ranks cannot share the"
                f" minibatch: declare one, b.input(name, [-1, ...]), {_OWN}"
            )
        spans = self._spans(cut, where)
        return given | {name: value[slice(*spans[name])] for name, value in cut.items()}

    def _rows(self, name: str, value: Any, where: str) -> Any:
        var = self._vars.get(name)
        if var is None:
            hint = nearest(name, self._vars)
            raise VariableError(f"{where}: the net has no variable {name!r}{hint}")
        if var.sequence_levels or isinstance(value, Sequences):
            return Sequences(*rows_and_offsets(value, var, f"{where}: variable"))
        try:
            return array_module(value).asarray(value)
        except (ValueError, TypeError, RuntimeError) as error:
            raise ShapeError(f"{where}: variable {name!r} is no array: {error}") from None

    def _is_cut(self, name: str, value: Any) -> bool:
        if isinstance(value, Sequences):
            return True
        var = self._vars[name]
        first = var.shape[0] if var.shape else -1
        return bool(value.ndim) and first < 0 and var.kind not in (PARAMETER, STATE)

    def _spans(self, cut: Mapping[str, Any], where: str) -> dict[str, tuple[int, int]]:
        """Where this rank's part of each value begins and ends."""
        sequences = {name: one for name, one in cut.items() if isinstance(one, Sequences)}
        rows = len(next(iter((sequences or cut).values())))
        own = rows * self._rank // self._size, rows * (self._rank + 1) // self._size
        by_length = {rows: {own}}  # length of an array -> where it may be cut
        for one in sequences.values():
            if len(one) == rows:
                begin, end = own
                for offsets in one.levels:
                    begin, end = int(offsets[begin]), int(offsets[end])
                    by_length.setdefault(int(offsets[-1]), set()).add((begin, end))
        spans = {}
        for name, value in cut.items():
            whole = isinstance(value, Sequences)
            choices = by_length.get(len(value), set())
            if len(value) != rows if whole else len(choices) != 1:
                held = ", ".join(f"{one} {len(array)}" for one, array in cut.items())
                raise ShapeError(
                    f"{where}: ranks share minibatches by rows, and {name!r} has {len(value)} where"
                    f" there are {held}: give inputs with equal numbers of rows, {_OWN}"
                )
            spans[name] = own if whole else next(iter(choices))
        return spans


class Joining:
    """Puts together what the ranks have measured on their parts of a minibatch.

    Arrays with a row a sample are joined. Of what `reduce_sum`, `reduce_max` and `reduce_min` make,
    the sum, the highest and the lowest count; whole numbers are counts and are added. Other numbers
    are averaged, by the weights of the ranks' losses where the net has these, else by rows.
    Parameters and states come from the first rank.
    """

    def __init__(self, net: OpList) -> None:
        self._vars = {var.name: var for var in net.vars}
        self._reduced = {
            name: _REDUCED[op.type]
            for op in net.ops
            if op.type in _REDUCED
            for name in op.output_names()
        }

    def join(
        self, ranks: Sequence[tuple[dict[str, np.ndarray], int, float | None]]
    ) -> tuple[dict[str, np.ndarray], int]:
        """The values and the number of rows of the whole minibatch, from what `unpack` gave."""
        weights = np.array([rows if weight is None else weight for _, rows, weight in ranks])
        joined = {
            name: self._one(name, [r[0][name] for r in ranks], weights) for name in ranks[0][0]
        }
        return joined, sum(rows for _, rows, _ in ranks)

    def _one(self, name: str, parts: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
        var = self._vars[name]
        first = parts[0]
        if var.kind in (PARAMETER, STATE):
            return first
        if first.ndim and (var.shape is None or not var.shape or var.shape[0] < 0):
            return np.concatenate(parts)
        if name in self._reduced:
            return self._reduced[name].reduce(parts)
        if first.dtype.kind in "biu":
            return np.add.reduce(parts)
        counted = [(w, part) for w, part in zip(weights, parts, strict=True) if w]
        if not counted:
            return first
        total = sum(weight for weight, _ in counted)
        wide = [weight * part.astype(np.float64) for weight, part in counted]
        return np.asarray(np.add.reduce(wide) / total)


def pack(values: Mapping[str, np.ndarray], rows: int, weight: float | None) -> bytes:
    """What a rank has measured, as bytes; halves as float32."""
    arrays = {
        name: np.ascontiguousarray(array if array.dtype.kind in "biuf" else array.astype("f4"))
        for name, array in values.items()
    }
    specs = [[name, a.dtype.str, list(values[name].shape)] for name, a in arrays.items()]
    head = json.dumps([rows, weight, specs]).encode()
    return b"\n".join((head, b"".join(array.tobytes() for array in arrays.values())))


def unpack(data: bytes) -> tuple[dict[str, np.ndarray], int, float | None]:
    """The inverse of `pack`."""
    end = data.index(b"\n")
    rows, weight, specs = json.loads(data[:end])
    start = end + 1
    values = {}
    for name, dtype, shape in specs:
        size = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(data, dtype, size, start)
        values[name] = array.reshape(shape)
        start += array.nbytes
    return values, rows, weight
