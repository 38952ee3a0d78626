"""One step of a net with its caches as inputs and outputs, as ONNX graphs of decoders have them.

The names are the same as in Hugging Face's exports. In: `input_ids` [N, T]; `attention_mask` [N, P
+ T], 0 where there is padding; `position_ids` [N, T], where the net has positions;
`past_key_values.0.key` [N, heads, P, width], ... Out: `logits` [N, T, tokens]; `present.0.key` [N,
heads, P + T, width], ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.ir.desc import INPUT, OUTPUT, make_op, make_var
from ...framework.ir.op_list import OpList
from ...framework.ir.operation import Operator
from ...framework.runtime.initialize import PERSISTENT
from .one_step import OneStep

IDS, SCORES = "input_ids", "logits"
MASK, POSITIONS = "attention_mask", "position_ids"
PLACES = "cache_position"
"""Positions [T] of the tokens, the same ones of all sequences."""
BRANCH = "use_cache_branch"
"""Of a merged decoder: whether the branch is run that reads caches, or the one for first tokens."""
_HERE = "past.length"


@dataclass
class CachedNet:
    """A net with caches as inputs and outputs.

    Attributes:
        caches: name of the input -> name of the output.
        shapes: of the inputs, -1 for sequences and rows.
    """

    net: OpList
    caches: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)


def cached_net(step: OneStep, ids: str, scores: str) -> CachedNet:
    """The net of a step, with its caches outside.

    Raises:
        OpscopeError: the step has none, or other states.
    """
    if step.memories or step.packed or not step.caches:
        raise OpscopeError(
            f"{step.net.name}: wants tokens [N, T], read by causal attention and no recurrent layer"
        )
    return _Writer(step, ids, scores).written()


def random_inputs(
    made: CachedNet, context: Mapping[str, np.ndarray], count: int
) -> list[dict[str, np.ndarray]]:
    """Inputs to check it with: without caches, and a token of each sequence with some.

    Args:
        context: values of the other inputs. count: of sequences.
    """
    rng = np.random.default_rng(0)
    inputs = []
    for past, steps in ((0, 3), (4, 1)):
        ids = rng.integers(0, 2, (count, steps))
        case = {**context, IDS: ids, MASK: np.ones((count, past + steps), np.int64)}
        if any(var.name == POSITIONS for var in made.net.vars):
            case[POSITIONS] = past + np.zeros_like(ids) + np.arange(steps)
        for name in made.caches:
            shape: Sequence[int] = made.shapes[name]
            dims = [count, *(past if size < 0 else size for size in shape[1:])]
            case[name] = rng.normal(size=dims)
        inputs.append(case)
    return inputs


class _Writer:
    def __init__(self, step: OneStep, ids: str, scores: str) -> None:
        self.step = step
        self.names = {ids: IDS, scores: SCORES}
        net = OpList(step.net.name)
        net.metadata.update(step.net.metadata)
        self.made = CachedNet(net)
        self.present: dict[str, str] = {}  # variable of the step -> its cache after the step
        self.rows: dict[str, str] = {}  # variable of a cache -> what is appended to it

    def written(self) -> CachedNet:
        net = self.made.net
        counted = any(op.type == "positions" for op in self.step.net.ops)
        for name in (IDS, MASK, *[POSITIONS] * counted):
            net.vars.append(make_var(name, [-1, -1], np.int64, INPUT))
        self._count_past()
        rules = {
            "positions": self._count,
            "cache_append": self._note_rows,
            "scaled_dot_product_attention": self._attend,
        }
        for desc in self.step.net.ops:
            node = desc.renamed(self.names)
            if desc.type in rules:
                rules[desc.type](Operator(node))
            else:
                net.ops.append(node)
        written = {name for op in net.ops for name in op.output_names()}
        known = {var.name for var in net.vars}
        outputs = {SCORES, *self.made.caches.values()}
        for var in self.step.net.vars:
            name = self.names.get(var.name, var.name)
            if name not in known and name not in self.rows and var.name != self.step.past:
                kind = (
                    INPUT if name in self.step.context and var.kind not in PERSISTENT else var.kind
                )
                net.vars.append(var.changed(name=name, kind=OUTPUT if name in outputs else kind))
                known.add(name)
        net.vars += [
            make_var(name, None, None, OUTPUT if name in outputs else 0)
            for name in sorted(written - known)
        ]
        return self.made

    def _add(self, op_type: str, inputs: Any, out: str, **attrs: Any) -> str:
        self.made.net.ops.append(make_op(op_type, inputs, {"out": out}, attrs))
        return out

    def _count_past(self) -> None:
        """[N], rows of the caches: the columns of the mask less the tokens' columns."""
        counts = []
        for name in (MASK, IDS):
            ones = self._add("fill_like", {"x": name}, f"{name}.ones", value=1.0)
            counts.append(self._add("reduce_sum", {"x": ones}, f"{name}.count", axes=[1]))
        self._add("sub", {"x": counts[0], "y": counts[1]}, _HERE)
        self._add("cast", {"x": MASK}, f"{MASK}.seen", dtype=np.dtype(bool))

    def _count(self, op: Operator) -> None:
        self._add("assign", {"x": POSITIONS}, op.outputs["out"][0])

    def _note_rows(self, op: Operator) -> None:
        self.rows[op.inputs["cache"][0]] = op.inputs["x"][0]

    def _attend(self, op: Operator) -> None:
        inputs = {slot: names[0] for slot, names in op.inputs.items()}
        (out,) = op.outputs["out"]
        attrs = dict(op.attrs)
        if inputs["key"] not in self.rows:
            self.made.net.ops.append(op.node)
            return
        heads = attrs["heads"]
        number = len(self.made.caches) // 2
        attrs["heads"] = 0
        inputs["query"] = self._heads_apart(inputs["query"], heads, f"{out}.query")
        for slot in ("key", "value"):
            inputs[slot] = self._appended(inputs[slot], heads, number, slot)
        inputs |= {"past": _HERE, "key_mask": f"{MASK}.seen"}
        if not heads:
            self._add(op.type, inputs, out, **attrs)
            return
        seen = self._add(op.type, inputs, f"{out}.heads", **attrs)
        beside = self._add("transpose", {"x": seen}, f"{out}.turned", perm=[0, 2, 1, 3])
        self._add("reshape", {"x": beside}, out, shape=[0, 0, -1])

    def _heads_apart(self, name: str, heads: int, out: str) -> str:
        if not heads:
            return name
        apart = self._add("reshape", {"x": name}, f"{out}.apart", shape=[0, 0, heads, -1])
        return self._add("transpose", {"x": apart}, out, perm=[0, 2, 1, 3])

    def _appended(self, cache: str, heads: int, number: int, slot: str) -> str:
        """Keys or values of all tokens, from those that are given and the step's."""
        (held,) = (one for one in self.step.caches if one.name == cache)
        given, out = f"past_key_values.{number}.{slot}", f"present.{number}.{slot}"
        dims, axis = held.shape, held.axis
        if heads:
            dims, axis = (-1, heads, -1, held.shape[-1] // heads), 2
        rows = self._heads_apart(self.rows[cache], heads, f"{out}.rows")
        self.made.net.vars.append(make_var(given, dims, held.dtype, INPUT))
        self.made.shapes[given] = dims
        self.made.caches[given] = out
        return self._add("concat", {"x": [given, rows]}, out, axis=axis)
