"""Cells written as step nets against PyTorch's LSTM and GRU on packed sequences, in float32."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import STATE, make_op, make_var
from opscope.framework.ir.op_list import OpList, VarDecl
from opscope.framework.loops.recurrent.net import recurrent_op
from opscope.framework.runtime.net import Net
from rnn_nets import fill, packed, rnn

torch = pytest.importorskip("torch")
IN, HIDDEN = 6, 7
LENGTHS = [3, 5, 1, 4]


@pytest.fixture(params=["steps", "fast"], autouse=True)
def way(request, monkeypatch):
    monkeypatch.setenv("OPSCOPE_RECURRENT", request.param)


def lstm(reverse=False):
    return rnn(
        [
            ("affine", {"x": "x", "w": "wx", "b": "bx"}, {"out": "zx"}),
            ("affine", {"x": "p", "w": "wh", "b": "bh"}, {"out": "zh"}),
            ("add", {"x": "zx", "y": "zh"}, {"out": "z"}),
            ("split", {"x": "z"}, {"out": ["zi", "zf", "zg", "zo"]}, {"axis": 1}),
            ("sigmoid", {"x": "zi"}, {"out": "i"}),
            ("sigmoid", {"x": "zf"}, {"out": "f"}),
            ("tanh", {"x": "zg"}, {"out": "g"}),
            ("sigmoid", {"x": "zo"}, {"out": "o"}),
            ("mul", {"x": "f", "y": "q"}, {"out": "fq"}),
            ("mul", {"x": "i", "y": "g"}, {"out": "ig"}),
            ("add", {"x": "fq", "y": "ig"}, {"out": "c"}),
            ("tanh", {"x": "c"}, {"out": "tc"}),
            ("mul", {"x": "o", "y": "tc"}, {"out": "h"}),
        ],
        ins={"xs": "x"},
        outs={"ys": "h"},
        statics={name: name for name in ("wx", "wh", "bx", "bh")},
        memories=[
            {"state": "h", "previous": "p", "boot": "h0", "final": "hT"},
            {"state": "c", "previous": "q", "boot": "c0", "final": "cT"},
        ],
        reverse=reverse,
    )


def gru(reverse=False):
    return rnn(
        [
            ("affine", {"x": "x", "w": "wx", "b": "bx"}, {"out": "zx"}),
            ("affine", {"x": "p", "w": "wh", "b": "bh"}, {"out": "zh"}),
            ("split", {"x": "zx"}, {"out": ["xr", "xz", "xn"]}, {"axis": 1}),
            ("split", {"x": "zh"}, {"out": ["hr", "hz", "hn"]}, {"axis": 1}),
            ("add", {"x": "xr", "y": "hr"}, {"out": "sr"}),
            ("sigmoid", {"x": "sr"}, {"out": "r"}),
            ("add", {"x": "xz", "y": "hz"}, {"out": "sz"}),
            ("sigmoid", {"x": "sz"}, {"out": "z"}),
            ("mul", {"x": "r", "y": "hn"}, {"out": "rn"}),
            ("add", {"x": "xn", "y": "rn"}, {"out": "sn"}),
            ("tanh", {"x": "sn"}, {"out": "n"}),
            ("sub", {"x": "p", "y": "n"}, {"out": "d"}),
            ("mul", {"x": "z", "y": "d"}, {"out": "zd"}),
            ("add", {"x": "n", "y": "zd"}, {"out": "h"}),
        ],
        ins={"xs": "x"},
        outs={"ys": "h"},
        statics={name: name for name in ("wx", "wh", "bx", "bh")},
        memories=[{"state": "h", "previous": "p", "boot": "h0", "final": "hT"}],
        reverse=reverse,
    )


def ours(desc, values, finals):
    """Outputs, final states, and the gradients of a weighted sum of them."""
    net, scope = OpList(name="outer"), Scope()
    fill(scope, values)
    net.vars.extend(make_var(name, None, None, 1) for name in values)
    net.ops.append(recurrent_op(desc))
    parts = []
    for name in ("ys", *finals):
        net.ops.append(make_op("sin", {"x": name}, {"out": f"{name}:s"}))
        net.ops.append(make_op("reduce_sum", {"x": f"{name}:s"}, {"out": f"{name}:t"}))
        parts.append(f"{name}:t")
    net.ops.append(make_op("sum", {"x": parts}, {"out": "loss"}))
    runner = Net.create(net)
    grads = runner.add_backward_ops("loss", list(values))
    runner.run(scope, OpContext(live_out=["ys", *finals, *grads.values()]))
    found = {name: scope.numpy(name) for name in ("ys", *finals)}
    return found | {f"{name}'": scope.numpy(grad) for name, grad in grads.items()}


def theirs(kind, values, finals, reverse):
    """The same from PyTorch; a reversed net is one direction of a bidirectional one."""
    module = getattr(torch.nn, kind)(IN, HIDDEN, bidirectional=reverse)
    suffix = "_reverse" if reverse else ""
    names = {"wx": "weight_ih_l0", "wh": "weight_hh_l0", "bx": "bias_ih_l0", "bh": "bias_hh_l0"}
    held = {name: getattr(module, theirs + suffix) for name, theirs in names.items()}
    with torch.no_grad():
        for name, parameter in held.items():
            parameter.copy_(torch.from_numpy(values[name].T))
    offsets = values["xs"].levels[0]
    xs = torch.from_numpy(values["xs"].data).requires_grad_()
    items = [xs[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    boots = [torch.from_numpy(values[n]).requires_grad_() for n in ("h0", "c0") if n in values]
    given = [
        torch.stack([torch.zeros_like(boot), boot]) if reverse else boot[None] for boot in boots
    ]
    batch = torch.nn.utils.rnn.pack_sequence(items, enforce_sorted=False)
    out, last = module(batch, tuple(given) if kind == "LSTM" else given[0])
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    half = padded[..., HIDDEN:] if reverse else padded
    ys = torch.cat(
        [half[i, : b - a] for i, (a, b) in enumerate(zip(offsets[:-1], offsets[1:], strict=True))]
    )
    states = [state[-1] for state in (last if kind == "LSTM" else [last])]
    sum(value.sin().sum() for value in (ys, *states)).backward()
    found = dict(zip(("ys", *finals), (ys, *states), strict=True))
    found |= {f"{name}'": parameter.grad.t() for name, parameter in held.items()}
    found["xs'"] = xs.grad
    found |= {f"{n}'": boot.grad for n, boot in zip(("h0", "c0"), boots, strict=False)}
    return {name: value.detach().numpy() for name, value in found.items()}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("make", "kind", "finals", "gates"),
    [(lstm, "LSTM", ["hT", "cT"], 4), (gru, "GRU", ["hT"], 3)],
)
def test_packed_sequences(make, kind, finals, gates, reverse):
    rng = np.random.default_rng(0)
    values = {
        "xs": packed(rng, LENGTHS, IN, dtype="float32"),
        "wx": rng.normal(size=(IN, gates * HIDDEN)) / 3,
        "wh": rng.normal(size=(HIDDEN, gates * HIDDEN)) / 3,
        "bx": rng.normal(size=gates * HIDDEN) / 3,
        "bh": rng.normal(size=gates * HIDDEN) / 3,
        "h0": rng.normal(size=(len(LENGTHS), HIDDEN)),
        "c0": rng.normal(size=(len(LENGTHS), HIDDEN)),
    }
    if kind == "GRU":
        del values["c0"]
    values = {n: v if n == "xs" else v.astype("float32") for n, v in values.items()}
    mine, wanted = ours(make(reverse), values, finals), theirs(kind, values, finals, reverse)
    assert mine.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(mine[name], value, rtol=1e-5, atol=2e-6, err_msg=name)


def test_truncated_back_propagation():
    """Two halves with the state carried over: outputs of the whole, gradients of the second."""
    rng = np.random.default_rng(1)
    weights = {
        "wx": rng.normal(size=(IN, 3 * HIDDEN)),
        "wh": rng.normal(size=(HIDDEN, 3 * HIDDEN)),
        "bx": rng.normal(size=3 * HIDDEN),
        "bh": rng.normal(size=3 * HIDDEN),
    }
    whole = packed(rng, [6, 6], IN)
    halves = [whole.data.reshape(2, 2, 3, IN)[:, half].reshape(6, IN) for half in range(2)]
    desc = gru()
    desc.vars.append(VarDecl("h0", kind=STATE, stop_gradient=True))
    start = np.zeros((2, HIDDEN))
    net, scope = OpList(name="outer"), Scope()
    fill(scope, weights | {"h0": start})
    net.vars.extend(make_var(name, None, None, 1) for name in (*weights, "xs"))
    net.vars.extend(desc.vars)
    net.ops.append(recurrent_op(desc))
    net.ops.append(make_op("assign", {"x": "hT"}, {"out": "h0"}))
    net.ops.append(make_op("reduce_sum", {"x": "ys"}, {"out": "loss"}))
    runner = Net.create(net)
    grads = runner.add_backward_ops("loss", ["wh"])
    outputs = []
    for half in halves:
        scope.var("xs").set(half, [[0, 3, 6]])
        runner.run(scope, OpContext(live_out=["ys", grads["wh"]]))
        outputs.append(scope.numpy("ys").reshape(2, 3, HIDDEN))
    once = ours(gru(), {"xs": whole, **weights, "h0": start}, ["hT"])
    np.testing.assert_allclose(np.concatenate(outputs, 1).reshape(12, -1), once["ys"], atol=1e-12)
    assert np.isfinite(scope.numpy(grads["wh"])).all()
