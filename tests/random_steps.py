"""A seeded generator of recurrent nets with two or three memories."""

from __future__ import annotations

import numpy as np

from opscope.framework.base.sequence import Sequences
from rnn_nets import packed, rnn

UNARY = ("tanh", "sigmoid", "sin", "square", "softmax", "relu")
BATCHES = ([3, 1, 4], [2, 2, 2], [5], [1, 0, 2], [1, 1], [2, 4, 4, 1, 0])


class Maker:
    """A random recurrent net with two or three memories.

    Args:
        widths: of its variables, at most one less.
    """

    def __init__(self, seed: int, dtype: str = "float64", widths: int = 4) -> None:
        self.dtype, self.most = dtype, widths
        self.rng = rng = np.random.default_rng(seed)
        self.lengths = BATCHES[seed % len(BATCHES)]
        self.ops, self.widths = [], {}
        self.values = {}
        self.statics = {}
        self.ins = {f"xs{i}": f"x{i}" for i in range(rng.integers(1, 3))}
        for outer, inner in self.ins.items():
            self.widths[inner] = int(rng.integers(1, widths))
            self.values[outer] = packed(rng, self.lengths, self.widths[inner], dtype=dtype)
        self.shapes = {}
        previous = [f"p{i}" for i in range(rng.integers(1, 4))]
        for name in previous:
            self.widths[name] = int(rng.integers(1, widths))
            self.shapes[name] = [-1, self.widths[name]]
        for number in range(rng.integers(4, 12)):
            self.add(f"v{number}")
        self.memories = [self.memory(number, name) for number, name in enumerate(previous)]
        written = [op[2]["out"] for op in self.ops]
        rows = [name for name in dict.fromkeys(map(self.first, written)) if name in self.widths]
        chosen = rng.choice(rows, size=min(2, len(rows)), replace=False)
        self.outs = {f"y{i}": str(name) for i, name in enumerate(chosen)}
        self.sums = {}
        if rng.random() < 0.4:
            self.ops.append(
                ("reduce_sum", {"x": str(chosen[0])}, {"out": "t"}, {"axes": [0]}),
            )
            self.sums["total"] = "t"
        self.desc = rnn(
            self.ops,
            ins=self.ins,
            outs=self.outs,
            statics=self.statics,
            sums=self.sums,
            memories=self.memories,
            shapes=self.shapes,
            reverse=bool(rng.random() < 0.5),
            dtype=dtype,
        )

    @staticmethod
    def first(names):
        return names if isinstance(names, str) else names[0]

    def pick(self) -> str:
        return str(self.rng.choice(list(self.widths)))

    def static(self, *shape: int) -> str:
        name = f"w{len(self.statics)}"
        self.statics[name] = name
        self.values[name] = (self.rng.normal(size=shape) / np.sqrt(shape[0])).astype(self.dtype)
        return name

    def draw(self, lengths: list[int]) -> None:
        """Other sequences, and initial states, of these lengths."""
        rng, dtype = self.rng, self.dtype
        for name, value in self.values.items():
            if isinstance(value, Sequences):
                self.values[name] = packed(rng, lengths, *value.data.shape[1:], dtype=dtype)
            elif name.startswith("boot"):
                shape = len(lengths), *value.shape[1:]
                self.values[name] = rng.normal(size=shape).astype(dtype)

    def as_wide(self, source: str, width: int, out: str) -> None:
        weights = self.static(self.widths[source], width)
        if self.rng.random() < 0.5:
            slots = {"x": source, "w": weights, "b": self.static(width)}
            self.ops.append(("affine", slots, {"out": out}))
        else:
            self.ops.append(("matmul", {"x": source, "y": weights}, {"out": out}))
        self.widths[out] = width

    def add(self, out: str) -> None:
        """One more operator, or a few that belong together."""
        rng, x = self.rng, self.pick()
        width = self.widths[x]
        kind = rng.choice(["unary", "product", "two", "vector", "join", "cut", "mix", "narrow"])
        if kind == "unary":
            self.ops.append((str(rng.choice(UNARY)), {"x": x}, {"out": out}))
        elif kind == "product":
            return self.as_wide(x, int(rng.integers(1, self.most)), out)
        elif kind == "two":
            same = [name for name in self.widths if self.widths[name] == width]
            slots = {"x": x, "y": str(rng.choice(same))}
            self.ops.append((str(rng.choice(["add", "mul", "sub"])), slots, {"out": out}))
        elif kind == "vector":
            slots = {"x": x, "y": self.static(width)}
            self.ops.append((str(rng.choice(["add", "mul"])), slots, {"out": out}))
        elif kind == "join":
            y = self.pick()
            self.ops.append(("concat", {"x": [x, y]}, {"out": out}, {"axis": 1}))
            width += self.widths[y]
        elif kind == "cut":
            left = int(rng.integers(0, width))
            attrs = {"axes": [1], "starts": [left], "ends": [width]}
            self.ops.append(("slice", {"x": x}, {"out": out}, attrs))
            width -= left
        elif kind == "narrow":
            attrs = {"axes": [1], "keepdims": True}
            self.ops.append(("reduce_mean", {"x": x}, {"out": out}, attrs))
            width = 1
        else:  # over the rows of a step: cannot be taken out of the loop
            self.ops.append(("reduce_mean", {"x": x}, {"out": f"{out}m"}, {"axes": [0]}))
            self.ops.append(("add", {"x": x, "y": f"{out}m"}, {"out": out}))
        self.widths[out] = width

    def memory(self, number: int, previous: str) -> dict:
        rng, width = self.rng, self.widths[previous]
        source = str(rng.choice([name for name in self.widths if name.startswith("v")]))
        state = f"s{number}"
        self.as_wide(source, width, f"{state}a")
        self.ops.append(("tanh", {"x": f"{state}a"}, {"out": state}))
        self.widths[state] = width
        memory = {"state": state, "previous": previous, "delay": int(rng.integers(1, 4))}
        if rng.random() < 0.5:
            memory["boot"] = f"boot{number}"
            self.values[f"boot{number}"] = rng.normal(size=(len(self.lengths), width)).astype(
                self.dtype
            )
        else:
            memory["boot_value"] = 0.3
        if rng.random() < 0.5:
            memory["final"] = f"final{number}"
        return memory

    @property
    def results(self) -> list[str]:
        finals = [memory["final"] for memory in self.memories if "final" in memory]
        return [*self.outs, *self.sums, *finals]
