"""Every operator either becomes PyTorch text that computes the same, or is refused with its reason.

The cases are those of the operators' own tests, in test phase; of sequences the first one is taken.
"""

from __future__ import annotations

import numpy as np
import pytest

from op_cases import kinds, net_of, op_tests, setups
from opscope.bridges.inference.cases import OwnRun
from opscope.bridges.inference.form import inference_form
from opscope.bridges.inference.refusals import OF_MODULES, OF_TRAINING, reason_of
from opscope.bridges.torch.folder import NotInTorchError
from opscope.bridges.torch.op_list.emission import WRITERS
from opscope.bridges.torch.op_list.expressions import Printer, Text, called
from opscope.bridges.torch.op_list.to_torch import NetWriter
from opscope.framework.base.errors import OpscopeError
from opscope.framework.fusion.scalars.expression import parse, written_out
from opscope.framework.fusion.scalars.pointwise import with_numbers
from opscope.framework.ir.desc import INPUT, make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.registry import lookup
from opscope.operators.names import names_of
from opscope.testing.op_setup import Setup
from torch_texts import error_of, run_module

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors.torch")

MOST = 3
"""Cases of an operator that are run."""
BOUND = 1e-6
"""Of values above 1 relative to them."""
ELSEWHERE = {
    **dict.fromkeys(("recurrent", "simple_rnn", "lstm", "gru"), "test_torch_op_nets.py"),
    "batch_norm_apply": "test_torch_op_nets.py",
    "nnet3.scale_offset": "tests/nnet3: from its expression alone",
    **{
        f"nnet3.{one}_gradient": "tests/nnet3: from its expression alone"
        for one in ("clip", "scale", "truncate")
    },
}
"""Operators without an operator test whose cases fit; where they are tested."""
ROUNDED = {"conv3d": 4e-6, "interpolate": 4e-6}
"""Bounds of operators that add up many products in another order."""


def compared(setup: Setup, dynamic: bool) -> float | None:
    """The error; None where our own executor refuses the case."""
    net, outputs = net_of(setup, dynamic)
    try:
        form = inference_form(net, outputs)
        run = OwnRun(form, {})
        inputs = {var.name: setup.arrays[var.name] for var in form.inputs}
        wanted = run(inputs)
    except OpscopeError:
        return None
    found = run_module(NetWriter(form, {}), inputs)
    return max(error_of(found[name], wanted[name]) for name in wanted)


def written(kind: str) -> bool:
    entry = lookup(kind)
    if kind in WRITERS or entry.expand is not None or "torch" in names_of(kind):
        return True
    return bool(entry.expressions) and not reason_of(kind, entry, OF_TRAINING)


def test_every_operator_is_written_or_refused():
    reasons = OF_TRAINING | OF_MODULES
    lost = [k for k in kinds() if not written(k) and not reason_of(k, lookup(k), reasons)]
    assert not lost, f"neither written nor refused: {lost}"


@pytest.mark.parametrize("kind", [kind for kind in kinds() if written(kind)])
def test_operators_agree(kind):
    if kind in ELSEWHERE or (kind == "net" and kind not in op_tests()):
        return
    agreed = 0
    for number, setup in enumerate(setups(kind)):
        error = compared(setup, dynamic=bool(number % 2))
        if error is not None:
            assert error < ROUNDED.get(kind, BOUND)
            agreed += 1
        if agreed == MOST:
            break
    assert agreed, f"no case of {kind} could be written"


NAMED = [
    kind
    for kind in kinds()
    if (name := names_of(kind).get("torch")) and name.is_plain and lookup(kind).expressions
]


@pytest.mark.parametrize("kind", NAMED)
def test_names_are_what_operators_compute(kind):
    """Also with attributes that are not the defaults."""
    entry, name = lookup(kind), names_of(kind)["torch"]
    rng, is_logic = np.random.default_rng(0), kind.startswith("logical")
    arrays = {slot: rng.normal(size=99) * 4 for slot in entry.input_slots}
    arrays |= {s: a > 0 for s, a in arrays.items() if s == "condition" or is_logic}
    attrs = {ours: 0.75 for ours in name.attrs.values()}
    net = OpList("one")
    net.vars = [make_var(slot, a.shape, a.dtype, INPUT) for slot, a in arrays.items()]
    net.vars.append(make_var("out", None, None))
    net.ops = [make_op(kind, {slot: slot for slot in arrays}, {"out": "out"}, attrs)]
    wanted = OwnRun(inference_form(net, ["out"]), {})(arrays)["out"]
    text = called(name, list(arrays), {ours: repr(value) for ours, value in attrs.items()})
    values = {slot: torch.from_numpy(array) for slot, array in arrays.items()}
    found = eval(text, {"torch": torch, "F": torch.nn.functional, **values})
    torch.testing.assert_close(found, torch.from_numpy(wanted), equal_nan=True)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("x < 0 ? 1 : x", "torch.where(x < 0.0, 1.0, x)"),
        ("x < 0 ? 0 : x", "F.relu(x)"),
        ("x < -y ? -y : x > 1 ? 1 : x", "torch.where(x < -y, -y, torch.where(x > 1.0, 1.0, x))"),
        ("x < -INFINITY ? -INFINITY : x > 1 ? 1 : x", "x.clamp(max=1.0)"),
        ("rint(x + 1) * round(x)", "(x + 1.0).round() * (x.sign() * (x.abs() + 0.5).floor())"),
        ("-(x + y) * 2 / y", "(x + y) * -2.0 / y"),
        ("x - (y - 1)", "x - (y - 1.0)"),
        ("(x > 0) * y", "(x > 0.0).to(x.dtype) * y"),
        ("x != x || !(y > 1 / 2)", "((x != x) | ~(y > 0.5)).to(x.dtype)"),
        ("alpha > 0 ? x : y", "x"),
        ("fmax(x, 0) + fabs(-y)", "torch.fmax(x, x.new_tensor(0.0)) + (-y).abs()"),
        ("sum(x)", "x + z"),
        ("alpha", "torch.full_like(x, 0.5)"),
    ],
)
def test_expressions_as_text(expression, text):
    tree = with_numbers(written_out(parse(expression), {"x": 2}), {"alpha": 0.5})
    values = {"x": Text("x"), "y": Text("y"), "x[0]": Text("x"), "x[1]": Text("z")}
    assert Printer(values, "x").print(tree) == text


@pytest.mark.parametrize("kind", ["uniform_random", "adam", "softmax_cross_entropy", "all_reduce"])
def test_operators_are_refused_with_a_reason(kind):
    setup = next(setups(kind))
    net, _ = setup.net(tails=False)
    names = [name for names in setup.outputs.values() for name in names]
    wanted = rf"PyTorch: 1 operator cannot be written:\n  op 0 \({kind}\)"
    with pytest.raises(NotInTorchError, match=wanted):
        NetWriter(inference_form(net, names[:1]), {})
