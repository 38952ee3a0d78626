"""Nets that a hand or a chance has changed: every one must give the package's error or a value.

The fields of such a NetDesc are all of the right wire types and mean nonsense: attributes of other
kinds, missing or extreme ones, names, ranks, enum values that nobody knows. Arrays beside a net
get other dtypes and shapes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from opscope.proto import net_pb2 as pb

from .mutate import flip

_INTS = (0, 1, -1, 2, 3, 7, 40, 64, 65, 1000, 10**6, 10**9, 2**31 - 1, 2**31, -(2**31), 2**40)
_INTS += (2**62, 2**63 - 1, -(2**63))
_FLOATS = (0.0, -1.0, 0.5, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"), 3.0)
_NAMES = ("", "x", "input", "output", "a b", "a\nb", "\0", "ä", "\u202e", "a/b", "-", "@GRAD")
_NAMES += ("X" * 300, "zz")
_TEXTS = (*_NAMES, "Append(", "Round(input, 100000000)", "Offset(input, 2147483647)", "Const(1, 2)")
_TEXTS += ("Scale(nan, input)", "Sum(input, input)", "Switch(input, input)", "gpu:" + "9" * 400)
_TEXTS += ("ReplaceIndex(input, t, 0)", "gpu:²", "gpu:99999999", "IfDefined(output)", "name=a=b")


def net(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """A net with a change to an operator, a variable, a step net or their lists."""
    desc = pb.NetDesc()
    try:
        desc.ParseFromString(data)
    except (DecodeError, RecursionError):
        return flip(data, rng, others)
    try:
        _Change(desc, rng).change(desc)
    except UnicodeEncodeError:  # a name that an earlier change made, which no field takes
        return data
    return desc.SerializeToString(deterministic=True)


class _Change:
    """Changes nets in the words of one of them.

    Args:
        net: gives names of variables and types of operators.
    """

    def __init__(self, net: pb.NetDesc, rng: random.Random) -> None:
        self.rng = rng
        self._types = sorted({op.type for op in net.ops})
        self._variables = [var.name for var in net.vars]

    def _pick(self, choices: Any) -> Any:
        return choices[self.rng.randrange(len(choices))]

    def change(self, desc: pb.NetDesc) -> None:
        kind = self.rng.random()
        if kind < 0.65 and desc.ops:
            self._change_op(self._pick(desc.ops))
        elif kind < 0.85 and desc.vars:
            self._change_var(self._pick(desc.vars))
        elif kind < 0.95:
            self._change_list(self._pick([desc.ops, desc.vars, desc.ops, desc.steps]))
        elif desc.steps:
            self._change_step(self._pick(desc.steps))
        else:
            key = self._pick([*desc.metadata, "dialect", "x"])
            desc.metadata[key] = self._pick(("nnet3", "nnet3.commands", "cntk", *_TEXTS))

    def _change_list(self, items: Any) -> None:
        if not items:
            return
        place = self.rng.randrange(len(items))
        what = self._pick(("delete", "double", "swap"))
        if what == "delete":
            del items[place]
        elif what == "double":
            items.add().CopyFrom(items[place])
        else:
            other, kept = self.rng.randrange(len(items)), type(items[place])()
            kept.CopyFrom(items[place])
            items[place].CopyFrom(items[other])
            items[other].CopyFrom(kept)

    def _name(self) -> str:
        return self._pick((*_NAMES, *self._variables))

    def _change_op(self, op: pb.OpDesc) -> None:
        what = self.rng.random()
        names = sorted(op.attrs)
        if what < 0.7 and names:
            self._change_attr(op, self._pick(names))
        elif what < 0.75:
            op.attrs[self._pick(("x", "axis", "dim", "name", ""))].CopyFrom(self._attr())
        elif what < 0.9:
            slots = self._pick((op.inputs, op.outputs))
            if not slots or self.rng.random() < 0.2:
                slots.add(name=self._pick(("x", "out", "")), vars=[self._name()])
            else:
                slot = self._pick(slots)
                changed = self._pick(("name", "vars", "vars", "none", "more"))
                if changed == "name":
                    slot.name = self._name()
                elif changed == "vars" and slot.vars:
                    slot.vars[self.rng.randrange(len(slot.vars))] = self._name()
                elif changed == "none":
                    del slot.vars[:]
                else:
                    slot.vars.extend([self._name()] * self._pick((1, 2, 100)))
        elif what < 0.94:
            op.type = self._pick((*self._types, *_NAMES))
        elif what < 0.97:
            op.device = self._pick(_TEXTS)
        else:
            op.role = self._pick((0, 1, 2, 3, 77, -1, 2**31 - 1))

    def _change_attr(self, op: pb.OpDesc, name: str) -> None:
        attr = op.attrs[name]
        kind, what = attr.WhichOneof("value"), self.rng.random()
        if what < 0.1:
            del op.attrs[name]
        elif kind == "net" and what < 0.7:
            self.change(attr.net)
        elif what < 0.55:
            attr.CopyFrom(self._attr(kind))
        else:
            attr.CopyFrom(self._attr())

    def _attr(self, kind: str | None = None) -> pb.Attr:
        """A value of a kind, or of any."""
        kinds = [field.name for field in pb.Attr.DESCRIPTOR.fields]
        kind = kind or self._pick([*kinds, None])
        attr, pick = pb.Attr(), self._pick
        size = pick((0, 1, 2, 3, 5, 100))
        if kind == "b":
            attr.b = self.rng.random() < 0.5
        elif kind == "i":
            attr.i = pick(_INTS)
        elif kind == "f":
            attr.f = pick(_FLOATS)
        elif kind == "s":
            attr.s = pick((*_TEXTS, *self._types, *self._variables))
        elif kind == "ints":
            attr.ints.values.extend([pick(_INTS) for _ in range(size)])
        elif kind == "floats":
            attr.floats.values.extend([pick(_FLOATS) for _ in range(size)])
        elif kind == "strings":
            attr.strings.values.extend([pick(_TEXTS) for _ in range(size)])
        elif kind == "bools":
            attr.bools.values.extend([True] * size)
        elif kind == "tensor":
            attr.tensor.CopyFrom(self._tensor())
        elif kind == "net":
            attr.net.format_version = 1
            for _ in range(pick((0, 1, 3))):
                attr.net.ops.add(type=pick((*self._types, "relu")))
        elif kind == "dtype":
            attr.dtype = pick((0, 1, 8, 9, 10, 11, 99, -5))
        if attr.WhichOneof("value") is None and kind in ("ints", "floats", "strings", "bools"):
            getattr(attr, kind).SetInParent()
        return attr

    def _tensor(self) -> pb.Tensor:
        tensor = pb.Tensor()
        tensor.dtype = self._pick((0, 1, 4, 5, 8, 9, 10, 99))
        dims = ((), (0,), (3,), (2, 2), (1,) * 64, (1,) * 65, (2**62, 4), (-1, 3), (0, 2**62))
        tensor.dims.extend(self._pick((*dims, (0,) * 70)))
        tensor.data = bytes(self._pick((0, 1, 4, 8, 12, 16, 24, 32)))
        return tensor

    def _change_var(self, var: pb.VarDesc) -> None:
        what = self._pick(
            ("name", "dtype", "dims", "dims", "rank", "kind", "lr", "view", "levels", "init")
        )
        if what == "name":
            var.name = self._name()
        elif what == "dtype":
            var.dtype = self._pick((0, 1, 4, 5, 7, 8, 9, 10, 11, 99, -1, 2**31 - 1))
        elif what == "dims" and var.dims:
            var.dims[self.rng.randrange(len(var.dims))] = self._pick(_INTS)
        elif what == "rank":
            del var.dims[:]
            var.has_dims = self.rng.random() < 0.5
            var.dims.extend(
                [self._pick((1, 2, 10**6, -1, 0))] * self._pick((0, 1, 2, 3, 64, 65, 200))
            )
        elif what == "kind":
            var.kind = self._pick((0, 1, 2, 3, 4, 5, 99, -1))
        elif what == "lr":
            var.lr_factor = self._pick(_FLOATS)
        elif what == "levels":
            var.sequence_levels = self._pick((0, 1, 2, 100, 2**32 - 1))
        elif what == "view":
            var.view.base = self._name()
            ends = ("row_begin", "row_end", "col_begin", "col_end")
            for end in ends:
                setattr(var.view, end, self._pick(_INTS))
        elif what == "init" and var.HasField("initializer"):
            self._change_op(var.initializer)
        else:
            var.initializer.type = self._pick(("fill", "uniform_random", "", "relu"))

    def _change_step(self, step: pb.StepDesc) -> None:
        if self.rng.random() < 0.5:
            self.change(step.net)
            return
        links = self._pick((step.in_links, step.out_links, step.static_links, step.sum_links))
        self._change_list(links)
        for memory in step.memories:
            memory.state = self._pick((memory.state, self._name()))
            memory.delay = self._pick((memory.delay, 0, 1, 7, 1000, 2**31))


def arrays(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Arrays of a safetensors file, one of which is gone, or is of another dtype or shape."""
    try:
        values = load(data)
    except SafetensorError:
        return flip(data, rng, others)
    if not values:
        return data
    name = rng.choice(sorted(values))
    array = values[name]
    what = rng.choice(("drop", "dtype", "rank", "shape", "nan", "zero"))
    if what == "drop":
        del values[name]
    elif what == "dtype":
        with np.errstate(invalid="ignore"):
            values[name] = array.astype(rng.choice(("f8", "f2", "i4", "u1", "?", "i8")))
    elif what == "rank":
        values[name] = rng.choice((array.reshape(-1), array[None], np.zeros((), array.dtype)))
    elif what == "shape" and array.ndim:
        values[name] = rng.choice((array[:0], array[:1], array.T, np.concatenate((array, array))))
    else:
        fill = np.nan if what == "nan" and array.dtype.kind == "f" else 0
        values[name] = np.full_like(array, fill)
    return save({name: np.ascontiguousarray(array) for name, array in values.items()})
