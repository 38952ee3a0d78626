"""Rows of a recurrent layer as its chains: in blocks of steps, with first states, and back."""

from __future__ import annotations

import numpy as np

from ..emit import F32, Value
from ..rows import Cache, Writer


class Chains:
    """A layer that reads itself d rows back: d chains side by side, as d times the sequences.

    Args:
        w: the writer.
        like: a value with the rows of the layer, [N, columns, times].
        chains: d.
        backward: whether the layer begins with the last row.
    """

    def __init__(self, w: Writer, like: Value, chains: int, backward: bool) -> None:
        self.w, self.chains, self.backward = w, chains, backward
        e, g = w.e, w.e.graph
        shape = e.op("Shape", like.name, name="rows_of_loop")
        self.batch = e.op("Slice", shape, g.ints(0), g.ints(1), name="sequences")
        self.many, self.count, self.missing = self.batch, "", ""
        if chains > 1:
            self.many = e.op("Mul", self.batch, g.ints(chains))
            self.count = e.op("Slice", shape, g.ints(2), g.ints(3), name="steps")
            negative = e.op("Neg", self.count)
            self.missing = e.op("Mod", negative, g.ints(chains), name="rows_missing")

    def blocks(self, value: Value) -> str:
        """[N, columns, times] as [times / chains, chains * N, columns]."""
        e, g = self.w.e, self.w.e.graph
        rows = e.op("Transpose", value.name, perm=[2, 0, 1])
        if self.chains == 1:
            return rows
        ends = g.ints(0, 0, 0, 0, 0)
        sides = (self.missing, ends) if self.backward else (g.ints(0, 0, 0), self.missing)
        more = () if self.backward else (g.ints(0, 0),)
        rows = e.op("Pad", rows, e.op("Concat", *sides, *more, axis=0))
        wanted = e.op("Concat", g.ints(-1), self.many, g.ints(value.dim), axis=0)
        return e.op("Reshape", rows, wanted)

    def first(self, name: str, dim: int) -> str:
        """What a step reads of a node where there is nothing yet: [chains * N, dim].

        Zeros, or what a stream keeps.
        """
        e, g, reader = self.w.e, self.w.e.graph, self.w.reader
        if not reader.streaming:
            shape = e.op("Concat", self.many, g.ints(dim), axis=0)
            zero = np.zeros(1, F32)
            return e.op("ConstantOfShape", shape, value=zero, name=f"{name}.zeros")
        cache = f"cache_{name}_state"
        if cache not in reader.caches:
            g.input(cache, F32, ["N", dim, self.chains])
            reader.caches[cache] = Cache(cache, dim, self.chains, self.chains, "zeros")
        rows = e.op("Transpose", cache, perm=[2, 0, 1])
        return e.op("Reshape", rows, g.ints(-1, dim))

    def rows(self, blocks: str, dim: int, name: str) -> str:
        """Back from blocks to [N, dim, times]."""
        e, g = self.w.e, self.w.e.graph
        if self.chains > 1:
            shape = e.op("Concat", g.ints(-1), self.batch, g.ints(dim), axis=0)
            blocks = e.op("Reshape", blocks, shape)
        rows = e.op("Transpose", blocks, perm=[1, 2, 0], name=name)
        if self.chains == 1:
            return rows
        ends = (self.missing, g.ints(2**62)) if self.backward else (g.ints(0), self.count)
        return e.op("Slice", rows, *ends, g.ints(2), name=name)

    def keep(self, name: str, rows: str) -> None:
        """Keep the last rows of a node for a stream's next chunk."""
        cache = f"cache_{name}_state"
        whole = self.w.e.op("Concat", cache, rows, axis=2)
        self.w.reader.set_new(cache, self.w.reader.last(whole, self.chains, cache))
