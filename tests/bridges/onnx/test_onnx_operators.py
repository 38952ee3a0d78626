"""Every operator either becomes ONNX nodes that compute the same, or is refused with its reason.

The cases are those of the operators' own tests, in test phase; of sequences the first one is taken.
"""

from __future__ import annotations

import pytest

from op_cases import kinds, net_of, op_tests, setups
from opscope.bridges.inference.cases import OwnRun
from opscope.bridges.inference.form import ExportError, inference_form
from opscope.bridges.inference.refusals import OF_MODULES, OF_TRAINING, reason_of
from opscope.bridges.onnx.export.checking import check_export
from opscope.bridges.onnx.export.emission import EMITTERS, LAST_OPSET, REFUSALS
from opscope.bridges.onnx.export.net import graph_of
from opscope.bridges.onnx.export.tables import all_tables
from opscope.bridges.onnx.files.graph import OPSET
from opscope.framework.base.errors import OpscopeError
from opscope.framework.ir.registry import lookup
from opscope.operators.names import names_of
from opscope.testing.op_setup import Setup

MOST = 3
"""Cases of an operator that are run."""
ELSEWHERE = {
    **dict.fromkeys(("recurrent", "simple_rnn", "lstm", "gru"), "test_onnx_nets.py"),
    "batch_norm_apply": "test_onnx_nets.py",
    "cntk.batch_norm": "test_onnx_cntk.py",
    "cntk.dropout_mask": "test_onnx_cntk.py",
    "cntk.is_training": "a constant",
    "nnet3.scale_offset": "its expression alone",
    **{f"nnet3.{one}_gradient": "its expression alone" for one in ("clip", "scale", "truncate")},
}
"""Operators without an operator test whose cases fit; where they are tested."""
UNDEFINED = {
    "argsort": "the order of NaN", "sort": "the order of NaN", "top_k": "the order of NaN",
    "conv_transpose2d": "output_padding", "cntk.cos_distance": "negatives",
    "einsum": "onnx does not broadcast axes of size 1", "diag": "unknown sizes",
    "integer_conv": "zero points of filters", "dynamic_quantize_linear": "float64",
    "one_hot": "runtimes have no double for it", "glu": "unknown sizes",
    "matmul_nbits": "blocks of 3 elements",
    "sequence_pool": "empty sequences", "sequence_context": "empty sequences",
}  # fmt: skip
"""Operators of whose cases some differ or are refused: what these are about."""


NAMED = {kind: names_of(kind)["onnx"] for kind in kinds() if "onnx" in names_of(kind)}


def exported(setup: Setup, dynamic: bool, opset: int = OPSET) -> float | None:
    """The error; None where our own executor refuses the case."""
    net, outputs = net_of(setup, dynamic)
    try:
        form = inference_form(net, outputs)
        run = OwnRun(form, {})
        inputs = {var.name: setup.arrays[var.name] for var in form.inputs}
        wanted = run(inputs)
    except OpscopeError:
        return None
    return check_export(graph_of(form, {}, opset=opset), [(inputs, wanted)], 2e-4)


def written(kind: str) -> bool:
    entry = lookup(kind)
    if kind in EMITTERS or entry.expand or "onnx" in names_of(kind):
        return True
    return bool(entry.expressions) and not reason_of(kind, entry, OF_TRAINING)


def test_every_operator_is_in_a_table():
    assert all_tables
    reasons = REFUSALS | OF_TRAINING | OF_MODULES
    lost = [k for k in kinds() if not written(k) and not reason_of(k, lookup(k), reasons)]
    assert not lost, f"neither exported nor refused: {lost}"
    assert not EMITTERS.keys() & REFUSALS.keys()
    assert len([kind for kind in kinds() if written(kind)]) >= 205


@pytest.mark.parametrize("kind", [kind for kind in kinds() if written(kind)])
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


@pytest.mark.parametrize("kind", [k for k, name in NAMED.items() if name.is_plain and name.since])
def test_names_of_later_opsets_agree(kind):
    pytest.importorskip("onnxruntime")
    since = NAMED[kind].since
    for setup in setups(kind):
        net, outputs = net_of(setup, False)
        form = inference_form(net, outputs)
        (node,) = graph_of(form, {}, opset=since).message.node
        assert node.op_type == NAMED[kind].name
        assert len(graph_of(form, {}, opset=since - 1).message.node) > 1
        assert exported(setup, False, since) is not None


@pytest.mark.parametrize(("kind", "name"), NAMED.items())
def test_names_are_those_of_the_schemas(kind, name):
    """They exist, since that opset, and their attributes have our defaults."""
    onnx = pytest.importorskip("onnx")
    schema = onnx.defs.get_schema(name.name, max(LAST_OPSET, name.since))
    assert not name.since or name.since == first_version(onnx, name.name)
    for theirs, ours in name.attrs.items():
        default = schema.attributes[theirs].default_value
        assert lookup(kind).attr_specs[ours].default == pytest.approx(default.f or default.i)
    assert schema.attributes.keys() >= name.fixed.keys()


def first_version(onnx, name: str) -> int:
    return min(
        one.since_version for one in onnx.defs.get_all_schemas_with_history() if one.name == name
    )


@pytest.mark.parametrize("kind", ["uniform_random", "adam", "softmax_cross_entropy", "all_reduce"])
def test_operators_are_refused_with_a_reason(kind):
    setup = next(setups(kind))
    net, _ = setup.net(tails=False)
    names = [name for names in setup.outputs.values() for name in names]
    with pytest.raises(ExportError, match=rf"1 operator cannot be exported:\n  op 0 \({kind}\)"):
        form = inference_form(net, names[:1])
        graph_of(form, {})
