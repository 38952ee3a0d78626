"""Every operator either becomes ONNX nodes that compute the same, or is refused with its reason.

The cases are those of the operators' own tests, in test phase; of sequences the first one is taken.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from opscope.bridges.onnx.export.cases import OwnRun
from opscope.bridges.onnx.export.checking import ExportError, check_export
from opscope.bridges.onnx.export.emission import EMITTERS, MODULE_REFUSALS, REFUSALS
from opscope.bridges.onnx.export.net import graph_of, inference_form
from opscope.bridges.onnx.export.tables import all_tables
from opscope.framework.base.errors import OpscopeError
from opscope.framework.ir.desc import INPUT
from opscope.framework.ir.registry import lookup, operator_types
from opscope.testing.op_setup import Case, Setup
from opscope.testing.op_test import OpTest

MOST = 3
"""Cases of an operator that are run."""
FILES = sorted((Path(__file__).parents[1] / "operators").glob("test_*.py"))
FILES += sorted((Path(__file__).parents[1] / "cntk").glob("test_operators*.py"))
ELSEWHERE = {
    "recurrent": "test_onnx_nets.py",
    "batch_norm_apply": "test_onnx_nets.py",
    "cntk.batch_norm": "test_onnx_cntk.py",
    "cntk.dropout_mask": "test_onnx_cntk.py",
    "cntk.is_training": "a constant",
}
"""Operators without an operator test whose cases fit; where they are tested."""
UNDEFINED = {
    "argsort": "the order of NaN", "sort": "the order of NaN", "top_k": "the order of NaN",
    "conv_transpose2d": "output_padding", "cntk.cos_distance": "negatives",
    "einsum": "onnx does not broadcast axes of size 1", "diag": "unknown sizes",
    "one_hot": "runtimes have no double for it", "glu": "unknown sizes",
    "sequence_pool": "empty sequences", "sequence_context": "empty sequences",
}  # fmt: skip
"""Operators of whose cases some differ or are refused: what these are about."""


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


def exported(setup: Setup, dynamic: bool) -> float | None:
    """The error; None where our own executor refuses the case."""
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
    try:
        form = inference_form(net, outputs)
        run = OwnRun(form, {})
        inputs = {var.name: setup.arrays[var.name] for var in form.inputs}
        wanted = run(inputs)
    except OpscopeError:
        return None
    return check_export(graph_of(form, {}), [(inputs, wanted)], 2e-4)


def kinds() -> list[str]:
    return [kind for kind in operator_types() if not kind.endswith("_grad")]


def refused(kind: str) -> bool:
    module = lookup(kind).module
    return kind in REFUSALS or any(module.startswith(one) for one in MODULE_REFUSALS)


def test_every_operator_is_in_a_table():
    assert all_tables
    lost = [
        kind
        for kind in kinds()
        if kind not in EMITTERS and not refused(kind) and lookup(kind).expand is None
    ]
    assert not lost, f"neither exported nor refused: {lost}"
    assert not EMITTERS.keys() & REFUSALS.keys()
    composites = [kind for kind in kinds() if lookup(kind).expand is not None]
    assert len(EMITTERS.keys() & set(kinds())) + len(composites) >= 195


@pytest.mark.parametrize("kind", [k for k in kinds() if k in EMITTERS or lookup(k).expand])
def test_operators_agree(kind):
    pytest.importorskip("onnxruntime")
    if kind in ELSEWHERE or (kind == "net" and kind not in op_tests()):
        return
    agreed = 0
    for number, setup in enumerate(setups(kind)):
        try:
            error = exported(setup, dynamic=bool(number % 2))
        except ExportError:
            if kind not in UNDEFINED:
                raise
            continue
        agreed += error is not None
        if agreed == MOST:
            break
    assert agreed, f"no case of {kind} could be exported"


@pytest.mark.parametrize("kind", ["uniform_random", "adam", "softmax_cross_entropy", "all_reduce"])
def test_operators_are_refused_with_a_reason(kind):
    setup = next(setups(kind))
    net, _ = setup.net(tails=False)
    names = [name for names in setup.outputs.values() for name in names]
    with pytest.raises(ExportError, match=rf"1 operator cannot be exported:\n  op 0 \({kind}\)"):
        form = inference_form(net, names[:1])
        graph_of(form, {})
