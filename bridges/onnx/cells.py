"""Finds the cells in step nets that ONNX has operators for: RNN, GRU, LSTM.

A gate is a linear function of in-links and memories before its activation. So it is read as a
matrix for each of them and a bias, whichever products, cuts and sums it was written with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ArraySpec
from ...framework.ir.operation import Operator
from ...framework.loops.recurrent.description import StepNet

_COPIES = ("assign", "stop_gradient", "dropout")
"""Operators that give what they take, at inference."""
_ACTIVATIONS = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu"}


@dataclass(frozen=True)
class Cell:
    """A step net that is one operator of ONNX.

    Attributes:
        type: RNN, GRU or LSTM.
        inputs: in-links that it reads, side by side. output: the variable with its result.
        memories: what the state, and of an LSTM the cell, before the step is called.
        w, r, b, p: weights as ONNX lays them out; p: peepholes or None.
        attributes: of the operator.
    """

    type: str
    inputs: list[str]
    output: str
    memories: list[str]
    w: np.ndarray
    r: np.ndarray
    b: np.ndarray
    p: np.ndarray | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Linear:
    """bias + sum of source @ matrix: matrices [K, N] by source, bias [N]."""

    parts: dict[str, np.ndarray]
    bias: np.ndarray

    @property
    def width(self) -> int:
        return len(self.bias)

    def __add__(self, other: _Linear) -> _Linear:
        parts = dict(self.parts)
        for name, matrix in other.parts.items():
            parts[name] = parts[name] + matrix if name in parts else matrix
        return _Linear(parts, self.bias + other.bias)

    def mapped(self, columns: Any) -> _Linear:
        """Some columns, or all times a number."""
        parts = {name: columns(matrix) for name, matrix in self.parts.items()}
        return _Linear(parts, columns(self.bias))


class _Reader:
    """Reads operators: those that make variables, the arrays of parameters, and the widths of
    variables that are taken as they are."""

    def __init__(
        self,
        writers: Mapping[str, Operator],
        arrays: Mapping[str, np.ndarray],
        widths: dict[str, int],
    ) -> None:
        self.writers = writers
        self.arrays = arrays
        self.sources = dict(widths)
        self._cuts: dict[str, tuple[str, slice]] = {}

    def op(self, name: str, *types: str) -> Operator | None:
        """The operator that makes a variable, if it is one of `types`; copies are seen through."""
        op = self.writers.get(self.plain(name))
        return op if op is not None and op.type in types else None

    def plain(self, name: str) -> str:
        """The variable that copies lead to."""
        while name in self.writers and self.writers[name].type in _COPIES:
            name = self.writers[name].inputs["x"][0]
        return name

    def two(self, name: str, kind: str) -> list[tuple[str, str]]:
        """Operands of a sum or product, in both orders; nothing where it is none."""
        op = self.op(name, kind)
        if op is None:
            return []
        x, y = op.inputs["x"][0], op.inputs["y"][0]
        return [(x, y), (y, x)]

    def gate(self, name: str, kind: str = "sigmoid") -> str | None:
        """The variable below an activation, or below a part of one; see `linear`."""
        op = self.op(name, kind)
        split = self.op(name, "split")
        if op is not None:
            return op.inputs["x"][0]
        whole = None if split is None else self.op(split.inputs["x"][0], kind)
        sections = [] if split is None else list(split.attrs["sections"])
        if split is None or whole is None or -1 in sections or split.attrs["axis"] not in (1, -1):
            return None
        form = self.linear(whole.inputs["x"][0])
        if form is None:
            return None
        outputs = split.outputs["out"]
        sections = sections or [form.width // len(outputs)] * len(outputs)
        place = outputs.index(self.plain(name))
        begin = sum(sections[:place])
        below = f"{name} below {kind}"
        self._cuts[below] = whole.inputs["x"][0], slice(begin, begin + sections[place])
        return below

    def less(self, name: str, other: str) -> bool:
        """Whether a variable is 1 less another one."""
        other = self.plain(other)
        op = self.op(other, "sigmoid")
        below = None if op is None else self.linear(op.inputs["x"][0])
        if below is None or other in self.sources:
            return False
        self.sources[other] = below.width
        form = self.linear(name)
        del self.sources[other]
        return (
            form is not None
            and set(form.parts) == {other}
            and bool((form.bias == 1).all())
            and np.array_equal(form.parts[other], -np.eye(below.width))
        )

    def linear(self, name: str, depth: int = 0) -> _Linear | None:
        """A variable [rows, N] as a linear function of the sources; None where it is none."""
        if name in self._cuts:
            whole, columns = self._cuts[name]
            form = self.linear(whole, depth + 1) if depth <= 50 else None
            return None if form is None else form.mapped(lambda part: part[..., columns])
        name = self.plain(name)
        if name in self.sources:
            width = self.sources[name]
            return _Linear({name: np.eye(width)}, np.zeros(width))
        op = self.writers.get(name)
        if op is None or depth > 50:
            return None
        read = getattr(self, f"_read_{op.type}", None)
        return None if read is None else read(op, name, depth + 1)

    def _constant(self, op: Operator, slot: str) -> np.ndarray | None:
        names = op.inputs.get(slot)
        array = self.arrays.get(names[0]) if names else None
        return None if array is None else np.asarray(array, np.float64)

    def _read_affine(self, op: Operator, name: str, depth: int) -> _Linear | None:
        w = self._constant(op, "w")
        if w is None or op.attrs["num_flatten_dims"] not in (-1, 1):
            return None
        product = self._product(op.inputs["x"][0], w, depth)
        bias = self._constant(op, "b") if op.inputs.get("b") else np.zeros(w.shape[1])
        if product is None or bias is None:
            return None
        return replace(product, bias=product.bias + bias)

    def _read_matmul(self, op: Operator, name: str, depth: int) -> _Linear | None:
        w = self._constant(op, "y")
        if w is None or w.ndim != 2 or op.attrs["transpose_x"]:
            return None
        w = (w.T if op.attrs["transpose_y"] else w) * op.attrs["alpha"]
        return self._product(op.inputs["x"][0], w, depth)

    def _product(self, name: str, w: np.ndarray, depth: int) -> _Linear | None:
        """A variable times a matrix, of which sources take rows: products by ones would be slow."""
        joined = self.op(name, "concat")
        if self.sources.get(self.plain(name)) == len(w):
            return _Linear({self.plain(name): w}, np.zeros(w.shape[1]))
        if joined is None or joined.attrs["axis"] not in (1, -1) or depth > 50:
            x = self.linear(name, depth)
            return None if x is None else x.mapped(lambda part: part @ w)
        total = _Linear({}, np.zeros(w.shape[1]))
        begin = 0
        for each in joined.inputs["x"]:
            width = self.sources.get(self.plain(each), 0)
            if not width:
                form = self.linear(each, depth)
                width = 0 if form is None else form.width
            part = self._product(each, w[begin : begin + width], depth + 1) if width else None
            if part is None:
                return None
            total, begin = total + part, begin + width
        return total

    def _read_add(self, op: Operator, name: str, depth: int) -> _Linear | None:
        return self._sum(op.inputs["x"] + op.inputs["y"], depth)

    def _read_sum(self, op: Operator, name: str, depth: int) -> _Linear | None:
        return self._sum(op.inputs["x"], depth)

    def _sum(self, names: tuple[str, ...], depth: int) -> _Linear | None:
        total: _Linear | None = None
        biases: list[np.ndarray] = []
        for name in names:
            if name in self.arrays:
                biases.append(np.asarray(self.arrays[name], np.float64))
                continue
            part = self.linear(name, depth)
            if part is None or (total is not None and total.width != part.width):
                return None
            total = part if total is None else total + part
        if total is None:
            return None
        for bias in biases:
            if bias.size not in (1, total.width):
                return None
            total = replace(total, bias=total.bias + bias.reshape(-1))
        return total

    def _read_scale(self, op: Operator, name: str, depth: int) -> _Linear | None:
        x = self.linear(op.inputs["x"][0], depth)
        if x is None:
            return None
        form = x.mapped(lambda part: part * op.attrs["scale"])
        return replace(form, bias=form.bias + op.attrs["bias"])

    def _read_mul(self, op: Operator, name: str, depth: int) -> _Linear | None:
        for x, y in self.two(name, "mul"):
            if y in self.arrays:
                factor = np.asarray(self.arrays[y], np.float64).reshape(-1)
                form = self.linear(x, depth)
                if form is None or factor.size not in (1, form.width):
                    return None
                return form.mapped(lambda part: part * factor)  # noqa: B023
        return None

    def _read_split(self, op: Operator, name: str, depth: int) -> _Linear | None:
        x = self.linear(op.inputs["x"][0], depth)
        if x is None or op.attrs["axis"] not in (1, -1):
            return None
        outputs = op.outputs["out"]
        sections = list(op.attrs["sections"]) or [x.width // len(outputs)] * len(outputs)
        if -1 in sections:
            return None
        place = outputs.index(name)
        begin = sum(sections[:place])
        return x.mapped(lambda part: part[..., begin : begin + sections[place]])

    def _read_slice(self, op: Operator, name: str, depth: int) -> _Linear | None:
        x = self.linear(op.inputs["x"][0], depth)
        a = op.attrs
        if x is None or list(a["axes"]) not in ([1], [-1]):
            return None
        end = a["ends"][0] if a["ends"] else None
        cut = slice(a["starts"][0], end, a["steps"][0] if a["steps"] else 1)
        return x.mapped(lambda part: part[..., cut])

    def _read_concat(self, op: Operator, name: str, depth: int) -> _Linear | None:
        parts = [self.linear(x, depth) for x in op.inputs["x"]]
        if op.attrs["axis"] not in (1, -1) or any(part is None for part in parts):
            return None
        total = sum(part.width for part in parts if part is not None)
        combined = _Linear({}, np.zeros(total))
        begin = 0
        for part in parts:
            assert part is not None
            place = np.zeros((part.width, total))
            place[np.arange(part.width), begin + np.arange(part.width)] = 1
            combined = combined + part.mapped(lambda matrix: matrix @ place)  # noqa: B023
            begin += part.width
        return combined

    def _read_reshape(self, op: Operator, name: str, depth: int) -> _Linear | None:
        x = self.linear(op.inputs["x"][0], depth)
        fits = x is not None and tuple(op.attrs["shape"]) in ((0, x.width), (0, -1), (-1, x.width))
        return x if fits else None


def layer_cell(
    kind: str, attrs: Mapping[str, Any], weights: Mapping[str, np.ndarray]
) -> Cell | None:
    """The operator of ONNX that a whole layer is; None where ONNX has none.

    Args:
        kind: `simple_rnn`, `lstm` or `gru`. attrs: of the layer. weights: arrays by slot.
    """
    w_x, w_h, b = weights["w_x"], weights["w_h"], weights["b"]
    after = np.zeros_like(b)
    if kind == "lstm":
        if "w_proj" in weights:
            return None
        type_, order, how = "LSTM", (0, 3, 1, 2), {}  # i, f, g, o -> i, o, f, c
    elif kind == "gru":  # r, z, n -> z, r, h
        type_ = "GRU"
        order = (1, 0, 2)
        how = {"linear_before_reset": int("b_h" in weights)}
        if "w_n" in weights:
            w_h = np.concatenate([w_h, weights["w_n"]], axis=1)
        after = weights.get("b_h", after)
    elif attrs["activation"] in _ACTIVATIONS:
        type_ = "RNN"
        order = (0,)
        how = {"activations": [_ACTIVATIONS[attrs["activation"]]]}
    else:
        return None

    def ordered(array: np.ndarray) -> np.ndarray:
        """Gates, side by side in the columns, in ONNX's order one below the other."""
        parts = np.split(array.T, len(order))
        return np.concatenate([parts[gate] for gate in order])

    biases = np.concatenate([ordered(b), ordered(after)])[None]
    p = None
    if any(f"p_{gate}" in weights for gate in "iof"):
        none = np.zeros(attrs["size"], w_x.dtype)
        p = np.concatenate([weights.get(f"p_{gate}", none) for gate in "iof"])[None]
    return Cell(type_, ["x"], "out", [], ordered(w_x)[None], ordered(w_h)[None], biases, p, how)


def find_cell(
    step: StepNet, arrays: Mapping[str, np.ndarray], specs: Mapping[str, ArraySpec]
) -> Cell | None:
    """The cell that a step net is, or None.

    Args:
        arrays: parameters among its static links. specs: of its variables.
    """
    widths: dict[str, int] = {}
    for name in [*step.inputs, *(memory.previous for memory in step.memories)]:
        shape = specs[name][0]
        if len(shape) != 2 or shape[1] < 0:
            return None
        widths[name] = shape[1]
    writers = {name: op for op in step.operators for name in op.output_vars()}
    reader = _Reader(writers, arrays, widths)
    if len(step.memories) == 2:
        first, second = step.memories
        for state, cell in ((first, second), (second, first)):
            lstm = _lstm(step, reader, state, cell)
            if lstm is not None:
                return lstm
    elif len(step.memories) == 1:
        return _gru(step, reader) or _rnn(step, reader)
    return None


def with_products(
    cell: Cell,
    links: Mapping[str, str],
    writers: Mapping[str, Operator],
    arrays: Mapping[str, np.ndarray],
    widths: Mapping[str, int],
) -> tuple[Cell, list[str]]:
    """The cell with the products before its loop in its own weights, where these become smaller.

    Args:
        links: in-link -> the variable outside.
        writers, arrays, widths: outside: operators by what they write, parameters, columns of
            matrices.

    Returns:
        The cell, and the variables outside that it reads side by side.
    """
    begin = 0
    blocks = dict[str, np.ndarray]()
    bias = np.zeros(cell.w.shape[1])
    known = {name: width for name, width in widths.items() if name not in writers}
    ends = {
        name: widths[name] for name in writers if name in widths and not _is_product(writers[name])
    }
    reader = _Reader(writers, arrays, {**known, **ends})
    for link in cell.inputs:
        outer = links[link]
        width = widths.get(outer, -1)
        form = reader.linear(outer)
        if form is None or form.width != width:
            return cell, [links[name] for name in cell.inputs]
        own = cell.w[0, :, begin : begin + width]
        begin += width
        bias += own @ form.bias
        for name, matrix in form.parts.items():
            blocks[name] = blocks.get(name, 0) + own @ matrix.T
    if sum(block.shape[1] for block in blocks.values()) > cell.w.shape[2] or not blocks:
        return cell, [links[name] for name in cell.inputs]
    b = cell.b.copy()
    b[0, : len(bias)] += bias
    w = np.concatenate(list(blocks.values()), axis=1)[None]
    return replace(cell, w=w, b=b), list(blocks)


def _is_product(op: Operator) -> bool:
    return hasattr(_Reader, f"_read_{op.type}")


def _lstm(step: StepNet, reader: _Reader, state: Any, cell: Any) -> Cell | None:
    shown = state.state
    after = cell.state
    for gate, value in reader.two(shown, "mul"):
        o = reader.gate(gate)
        below = reader.gate(value, "tanh")
        if o is None or below is None or reader.plain(below) != reader.plain(after):
            continue
        for kept, new in reader.two(after, "add"):
            for f_gate, before in reader.two(kept, "mul"):
                for i_gate, g_gate in reader.two(new, "mul"):
                    f = reader.gate(f_gate)
                    i = reader.gate(i_gate)
                    g = reader.gate(g_gate, "tanh")
                    right = reader.plain(before) == cell.previous
                    if right and f is not None and i is not None and g is not None:
                        return _lstm_cell(step, reader, (i, o, f, g), state, cell)
    return None


def _lstm_cell(
    step: StepNet, reader: _Reader, gates: tuple[str, ...], state: Any, cell: Any
) -> Cell | None:
    i, o, f, g = gates
    forms = {name: reader.linear(name) for name in (i, f, g)}
    reader.sources[reader.plain(cell.state)] = reader.sources[cell.previous]
    forms[o] = reader.linear(o)
    now = reader.plain(cell.state)
    listed = [forms[name] for name in gates]
    if any(form is None for form in listed):
        return None
    inputs = [name for name in step.inputs if any(form and name in form.parts for form in listed)]
    peepholes: list[np.ndarray] = []
    for form, name in zip(listed, (cell.previous, now, cell.previous, ""), strict=True):
        assert form is not None
        size = form.width
        matrix = form.parts.get(name, np.zeros((size, size)))
        if set(form.parts) - {*inputs, state.previous, name} or np.any(
            matrix != np.diag(np.diag(matrix))
        ):
            return None
        peepholes.append(np.diag(matrix))
    weights = _weights(reader, listed, inputs, state.previous)
    if weights is None:
        return None
    p = np.concatenate(peepholes[:3])[None]
    return Cell(
        "LSTM",
        inputs,
        state.state,
        [state.previous, cell.previous],
        *weights,
        p if p.any() else None,
    )


def _weights(
    reader: _Reader, forms: list[Any], inputs: list[str], state: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """W [1, gates H, K], R [1, gates H, H] and B [1, 2 gates H] of linear forms."""
    size = reader.sources[state]
    if not inputs or any(form.width != size for form in forms):
        return None

    def matrix(form: _Linear, name: str) -> np.ndarray:
        return form.parts.get(name, np.zeros((reader.sources[name], size)))

    w = [np.concatenate([matrix(form, name) for name in inputs]).T for form in forms]
    r = [matrix(form, state).T for form in forms]
    b = [form.bias for form in forms]
    zeros = np.zeros(size * len(forms))
    return np.concatenate(w)[None], np.concatenate(r)[None], np.concatenate([*b, zeros])[None]


def _rnn(step: StepNet, reader: _Reader) -> Cell | None:
    memory = step.memories[0]
    op = reader.op(memory.state, *_ACTIVATIONS)
    form = None if op is None else reader.linear(op.inputs["x"][0])
    if op is None or form is None:
        return None
    inputs = [name for name in step.inputs if name in form.parts]
    weights = _weights(reader, [form], inputs, memory.previous)
    if weights is None:
        return None
    how = {"activations": [_ACTIVATIONS[op.type]]}
    return Cell("RNN", inputs, memory.state, [memory.previous], *weights, attributes=how)


def _gru(step: StepNet, reader: _Reader) -> Cell | None:
    memory = step.memories[0]
    for z_gate, n_value in _mixes(reader, memory):
        z = reader.gate(z_gate)
        n = reader.gate(n_value, "tanh")
        if z is not None and n is not None:
            return _gru_after(step, reader, memory, z, n) or _gru_before(step, reader, memory, z, n)
    return None


def _mixes(reader: _Reader, memory: Any) -> Iterator[tuple[str, str]]:
    """z and n of h' = n + z (h - n), the form of `gru_cell`, or of h' = (1 - z) n + z h."""
    for first, second in reader.two(memory.state, "add"):
        for z, mixed in reader.two(second, "mul"):
            less = reader.op(mixed, "sub")
            ends = [] if less is None else [reader.plain(less.inputs[slot][0]) for slot in "xy"]
            if ends == [memory.previous, reader.plain(first)]:
                yield z, first
            if reader.plain(mixed) == memory.previous:
                yield from [(z, n) for n, rest in reader.two(first, "mul") if reader.less(rest, z)]


def _gru_after(step: StepNet, reader: _Reader, memory: Any, z: str, n: str) -> Cell | None:
    """n = x_n + r (h w + b): the reset gate acts after the product."""
    for x_part, reset in reader.two(n, "add"):
        for r_gate, h_part in reader.two(reset, "mul"):
            r = reader.gate(r_gate)
            forms = [reader.linear(one) for one in (z, r or "", x_part, h_part)]
            z_form, r_form, x_form, h_form = forms
            if r is None or z_form is None or r_form is None or x_form is None or h_form is None:
                continue
            inputs = [name for name in step.inputs if _reads(name, z_form, r_form, x_form)]
            alone = memory.previous not in x_form.parts and set(h_form.parts) == {memory.previous}
            both = _Linear({**x_form.parts, **h_form.parts}, x_form.bias)
            weights = _weights(reader, [z_form, r_form, both], inputs, memory.previous)
            if not alone or weights is None:
                continue
            size = z_form.width
            weights[2][0, 5 * size :] = h_form.bias
            return _gru_cell(inputs, memory, weights, after=1)
    return None


def _gru_before(step: StepNet, reader: _Reader, memory: Any, z: str, n: str) -> Cell | None:
    """n = x_n + (r h) w: the reset gate acts before the product."""
    for name in list(reader.writers):
        for r_gate, before in reader.two(name, "mul"):
            r = reader.gate(r_gate)
            if r is None or reader.plain(before) != memory.previous:
                continue
            z_form, r_form = reader.linear(z), reader.linear(r)
            reader.sources[name] = reader.sources[memory.previous]
            n_form = reader.linear(n)
            del reader.sources[name]
            if z_form is None or r_form is None or n_form is None or name not in n_form.parts:
                continue
            if memory.previous in n_form.parts:
                continue
            inputs = [link for link in step.inputs if _reads(link, z_form, r_form, n_form)]
            parts = dict(n_form.parts)
            parts[memory.previous] = parts.pop(name)
            forms = [z_form, r_form, _Linear(parts, n_form.bias)]
            weights = _weights(reader, forms, inputs, memory.previous)
            if weights is not None:
                return _gru_cell(inputs, memory, weights, after=0)
    return None


def _reads(name: str, *forms: _Linear) -> bool:
    return any(name in form.parts for form in forms)


def _gru_cell(inputs: list[str], memory: Any, weights: Any, after: int) -> Cell:
    how = {"linear_before_reset": after}
    return Cell("GRU", inputs, memory.state, [memory.previous], *weights, attributes=how)
