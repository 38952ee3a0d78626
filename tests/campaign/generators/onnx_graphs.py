"""Graphs of ONNX operators, run beside ONNX Runtime."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.importing.model import model_of_bytes

from ..inputs import Depth, WrongError
from .seeded import seeded

_TOLERANCE = 1e-4
_UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Softplus", "Elu", "LeakyRelu", "Erf", "Sin")
_UNARY += ("Cos", "Identity", "HardSigmoid", "Selu", "Softsign", "Atan")
_PAIRS = ("Add", "Sub", "Mul", "Max", "Min")
_REDUCED = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2")


@dataclass
class _Grammar:
    """Grows a graph; every value has a known shape.

    Attributes:
        said: a line for each node.
    """

    rng: random.Random
    graph: Graph = field(default_factory=lambda: Graph("grown"))
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    feed: dict[str, np.ndarray] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def input(self, shape: tuple[int, ...]) -> None:
        name = f"x{len(self.feed)}"
        self.shapes[self.graph.input(name, np.float32, list(shape))] = shape
        self.feed[name] = self._values(shape)
        self.said.append(f"{name} {list(shape)}")

    def _values(self, shape: tuple[int, ...]) -> np.ndarray:
        numbers = np.random.default_rng(self.rng.getrandbits(32))
        return numbers.uniform(-1, 1, size=shape).astype(np.float32)

    def constant(self, shape: tuple[int, ...]) -> str:
        name = f"c{len(self.said)}_{len(shape)}"
        return self.graph.constant(self._values(shape), name, np.float32)

    def node(self, op: str, inputs: list[str], shape: tuple[int, ...], **attrs: object) -> None:
        made = self.graph.node(op, inputs, f"v{len(self.said)}", **attrs)
        self.shapes[made] = shape
        self.said.append(f"{made} = {op}({', '.join(inputs)}) {attrs or ''} {list(shape)}")

    def grow(self) -> None:
        one = self.rng.choice(list(self.shapes)[-4:])
        ways: list[Callable[[str, tuple[int, ...]], None]] = [self.unary, self.unary, self.pair]
        ways += [self.joined, self.reduced, self.turned, self.reshaped, self.softmax, self.cut]
        rank = len(self.shapes[one])
        ways += [self.product, self.gemm] if rank == 2 else []
        ways += [self.convolved, self.pooled] if rank == 4 else []
        self.rng.choice(ways)(one, self.shapes[one])

    def unary(self, one: str, shape: tuple[int, ...]) -> None:
        self.node(self.rng.choice(_UNARY), [one], shape)

    def pair(self, one: str, shape: tuple[int, ...]) -> None:
        alike = [name for name, dims in self.shapes.items() if dims == shape]
        other = self.rng.choice(alike)
        if self.rng.random() < 0.5:  # broadcast
            other = self.constant(tuple(d if self.rng.random() < 0.5 else 1 for d in shape))
        self.node(self.rng.choice(_PAIRS), [one, other], shape)

    def joined(self, one: str, shape: tuple[int, ...]) -> None:
        axis, size = self.rng.randrange(len(shape)), self.rng.randint(1, 2)
        more = self.constant((*shape[:axis], size, *shape[axis + 1 :]))
        joined = (*shape[:axis], shape[axis] + size, *shape[axis + 1 :])
        self.node("Concat", [one, more], joined, axis=axis)

    def reduced(self, one: str, shape: tuple[int, ...]) -> None:
        axis, keep = self.rng.randrange(len(shape)), self.rng.random() < 0.6 or len(shape) < 3
        left = (*shape[:axis], *([1] if keep else []), *shape[axis + 1 :])
        op = self.rng.choice(_REDUCED)
        kept = int(keep)
        if op == "ReduceSum":
            self.node(op, [one, self.graph.ints(axis)], left, keepdims=kept)
        else:
            self.node(op, [one], left, axes=[axis], keepdims=kept)

    def turned(self, one: str, shape: tuple[int, ...]) -> None:
        order = list(range(len(shape)))
        self.rng.shuffle(order)
        self.node("Transpose", [one], tuple(shape[axis] for axis in order), perm=order)

    def reshaped(self, one: str, shape: tuple[int, ...]) -> None:
        rest = int(np.prod(shape[1:]))
        self.node("Reshape", [one, self.graph.ints(0, -1)], (shape[0], rest))

    def softmax(self, one: str, shape: tuple[int, ...]) -> None:
        axis = self.rng.randrange(-1, len(shape))
        self.node(self.rng.choice(("Softmax", "LogSoftmax")), [one], shape, axis=axis)

    def cut(self, one: str, shape: tuple[int, ...]) -> None:
        axis = self.rng.randrange(len(shape))
        begin = self.rng.randrange(shape[axis])
        bounds = [self.graph.ints(each) for each in (begin, 2**31 - 1, axis)]
        size = shape[axis] - begin
        self.node("Slice", [one, *bounds], (*shape[:axis], size, *shape[axis + 1 :]))

    def product(self, one: str, shape: tuple[int, ...]) -> None:
        columns = self.rng.randint(1, 4)
        self.node("MatMul", [one, self.constant((shape[1], columns))], (shape[0], columns))

    def gemm(self, one: str, shape: tuple[int, ...]) -> None:
        columns, turned = self.rng.randint(1, 4), self.rng.randrange(2)
        weights = self.constant((columns, shape[1]) if turned else (shape[1], columns))
        bias = self.graph.constant(self._values((columns,)), f"b{len(self.said)}", np.float32)
        attrs = {"alpha": self.rng.choice((1.0, 0.5)), "transB": turned}
        self.node("Gemm", [one, weights, bias], (shape[0], columns), **attrs)

    def convolved(self, one: str, shape: tuple[int, ...]) -> None:
        size, pad = self.rng.choice(((1, 0), (3, 1)))
        filters, stride = self.rng.randint(1, 3), self.rng.randint(1, 2)
        weights = self.constant((filters, shape[1], size, size))
        left = tuple((dim + 2 * pad - size) // stride + 1 for dim in shape[2:])
        attrs = {"kernel_shape": [size] * 2, "pads": [pad] * 4, "strides": [stride] * 2}
        self.node("Conv", [one, weights], (shape[0], filters, *left), **attrs)

    def pooled(self, one: str, shape: tuple[int, ...]) -> None:
        if min(shape[2:]) < 2:
            return
        left = tuple((dim - 2) // 2 + 1 for dim in shape[2:])
        op = self.rng.choice(("MaxPool", "AveragePool"))
        self.node(op, [one], (*shape[:2], *left), kernel_shape=[2, 2], strides=[2, 2])


@dataclass
class _Grown:
    """A model with its inputs."""

    data: bytes
    feed: dict[str, np.ndarray]


def _build(rng: random.Random) -> tuple[str, _Grown]:
    grammar = _Grammar(rng)
    shape = (rng.randint(1, 3), rng.randint(1, 4))
    if rng.random() < 0.35:
        shape = (*shape, rng.randint(3, 6), rng.randint(3, 6))
    grammar.input(shape)
    for _ in range(rng.randint(1, 8)):
        grammar.grow()
    made = [name for name in grammar.shapes if name.startswith("v")]
    if not made:
        grammar.unary("x0", shape)
        made = list(grammar.shapes)[-1:]
    for name in made[-2:]:
        grammar.graph.output(name, np.float32)
    return "\n".join(grammar.said) + "\n", _Grown(model_bytes(grammar.graph), grammar.feed)


def _run(_: str, grown: _Grown | None) -> Depth:
    if grown is None:
        return Depth.READ
    found = model_of_bytes(grown.data).run(grown.feed)
    try:
        import onnxruntime as ort
    except ImportError:  # values without a reference
        return Depth.RAN
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(grown.data, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    for name, wanted in zip(names, session.run(None, grown.feed), strict=True):
        got = np.asarray(found[name])
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            raise WrongError("shape of an ONNX output", f"{got.shape} for {wanted.shape}")
        if not np.allclose(got, wanted, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True):
            raise WrongError("value of an ONNX output", f"{name}: {got} for {wanted}")
    return Depth.RAN


GENERATORS = (seeded("ONNX graphs", _build, _run, share=0.5),)
