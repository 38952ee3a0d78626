"""The cases of the operators' own tests, for what writes operators elsewhere.

They are in test phase, and of sequences the first one is taken.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from opscope.framework.base.errors import OpscopeError
from opscope.framework.ir.desc import INPUT
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.registry import lookup, operator_types
from opscope.testing.op_setup import Case, Setup
from opscope.testing.op_test import OpTest

FILES = sorted((Path(__file__).parent / "operators").rglob("test_*.py"))
FILES += sorted((Path(__file__).parent / "cntk" / "operators").glob("test_operators*.py"))


def kinds() -> list[str]:
    """All but gradients and what only describes rows, of which networks of nnet3 are tests."""
    return [k for k in operator_types() if not k.endswith("_grad") and not k.startswith("rows.")]


@cache
def op_tests() -> dict[str, list[type[OpTest]]]:
    found: dict[str, list[type[OpTest]]] = {}
    for file in FILES:
        spec = importlib.util.spec_from_file_location(f"onnx_of_{file.stem}", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for one in vars(module).values():
            if inspect.isclass(one) and issubclass(one, OpTest) and getattr(one, "type", ""):
                found.setdefault(one.type, []).append(one)
    return found


def one_sequence(case: Case) -> Case | None:
    """The case with the first sequence alone; None where it has sequences of sequences."""
    inputs, offsets, count = dict(case.inputs), {}, None
    for slot, levels in case.offsets.items():
        many = isinstance(inputs[slot], list)
        listed = levels if many else [levels]
        if any(len(own) != 1 for own in listed):
            return None
        count = len(listed[0][0]) - 1
        arrays = inputs[slot] if many else [inputs[slot]]
        cut = [np.asarray(a)[: own[0][1]] for a, own in zip(arrays, listed, strict=True)]
        if not all(map(len, cut)):
            return None
        inputs[slot] = cut if many else cut[0]
        offsets[slot] = [[[0, len(a)]] for a in cut] if many else [[0, len(cut[0])]]
    for slot, value in inputs.items():
        array = None if isinstance(value, list) else np.asarray(value)
        if slot not in offsets and array is not None and array.ndim and len(array) == count:
            inputs[slot] = array[:1]
    return replace(case, inputs=inputs, offsets=offsets)


def setups(kind: str) -> Iterator[Setup]:
    for test in op_tests().get(kind, ()):
        one = test()
        for case in one.cases(np.random.default_rng(1)):
            cut = one_sequence(replace(case, train=False, share={}))
            if cut is None:
                continue
            try:
                yield Setup(lookup(kind), cut, "float32", one.reference)
            except (AttributeError, ValueError, IndexError, OpscopeError):
                continue  # the reference is of training, or of several sequences


def net_of(setup: Setup, dynamic: bool) -> tuple[OpList, list[str]]:
    """A net of the operator alone, and its results.

    Args:
        dynamic: whether the first size of inputs is unknown.
    """
    net, _ = setup.net(tails=False)
    levels = {name: len(own) for name, own in setup.given_offsets.items()}
    net.vars = [
        var.changed(shape=None)
        if var.kind != INPUT
        else var.changed(
            shape=(-1, *var.shape[1:]) if dynamic and var.shape else var.shape,
            sequence_levels=levels.get(var.name, 0),
        )
        for var in net.vars
    ]
    written = setup.inputs.values()
    outputs = [
        name
        for slot in setup.entry.outputs
        if not slot.intermediate and not slot.name.endswith("_out")
        for name in setup.outputs.get(slot.name, ())
        if name not in written
    ]
    return net, outputs
