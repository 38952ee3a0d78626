"""Spliced rows that are read where they lie, and work in pieces: the same as with copies, whole."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import nnet3
from opscope.framework.ir.desc import TEMPORARY
from opscope.framework.ir.op_list import OpList, OpNode, VarDecl, View
from opscope.nnet3.components.products import tdnn
from opscope.nnet3.lower import requests
from opscope.nnet3.lower.splices import read_in_place

_OFFSETS = ("Append(-1,0,1)", "Append(-3,0,3)", "Append(0,2)", "Append(-2,0)", "Append(-3,-1,0,2)")


def _random_net(rng):
    """Layers over offsets, of widths that pay."""
    lines = ["input name=input dim=40"]
    for number in range(rng.integers(2, 5)):
        lines.append(
            f"relu-batchnorm-layer name=t{number} dim={rng.choice([64, 96, 130])}"
            f" input={rng.choice(_OFFSETS)}"
        )
    if rng.random() < 0.5:
        lines.append("relu-batchnorm-layer name=wide dim=96")
        lines.append("tdnnf-layer name=f dim=96 bottleneck-dim=24 time-stride=1")
    lines.append("output-layer name=output dim=70")
    config = nnet3.xconfig_to_config("\n".join(lines))
    return nnet3.Nnet.from_config_text(config, int(rng.integers(1000)))


def _computed(nnet, request, given, derivative):
    """Output and gradients, and the operators that computed them."""
    desc = nnet3.compile_request(nnet, request)
    computer = nnet3.NnetComputer(desc, nnet)
    computer.accept_input("input", given)
    computer.run()
    found = {"output": np.array(computer.get_output("output"))}
    if derivative is not None:
        computer.accept_input("output", derivative)
        computer.run()
        found["gradient"] = np.array(computer.model_derivative())
    return found, [op.type for op in desc.ops]


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_random_nets(seed, train, monkeypatch):
    rng = np.random.default_rng(seed)
    nnet = _random_net(rng)
    if not train:
        for component in nnet.components.values():
            if hasattr(component, "stats_sum"):
                component.count = 100.0
                component.stats_sum = np.zeros_like(component.stats_sum)
                component.stats_sumsq = np.full_like(component.stats_sum, 100.0)
        nnet3.prepare_for_test(nnet)
    request = nnet3.simple_request(nnet, 20, 64, derivatives=train)
    for io in request.inputs:
        io.has_deriv = False
    given = rng.standard_normal((len(request.inputs[0].indexes), 40), np.float32)
    derivative = rng.standard_normal((len(request.outputs[0].indexes), 70), np.float32)
    on, spliced = _computed(nnet, request, given, derivative if train else None)
    assert "nnet3.spliced_matmul" in spliced
    monkeypatch.setattr(requests, "read_in_place", lambda net: net)
    monkeypatch.setattr(tdnn, "_SPAN", 1 << 30)
    off, plain = _computed(nnet, request, given, derivative if train else None)
    assert "nnet3.spliced_matmul" not in plain
    assert off.keys() == on.keys() and len(off) > (1 if train else 0)
    for name, array in off.items():
        size = max(float(np.abs(array).max()), 1.0)
        np.testing.assert_allclose(on[name] / size, array / size, atol=1e-5, err_msg=name)


def _net(*, middle=(), after=()):
    """Two copies and a product; what comes between and behind these."""
    f = np.dtype(np.float32)
    view = {
        "x.a": View("x", 0, 512, 0, 64),
        "x.b": View("x", 1, 513, 0, 64),
        "s.a": View("s", 0, 512, 0, 64),
        "s.b": View("s", 0, 512, 64, 128),
    }
    variables = [
        VarDecl("x", (513, 64), f, TEMPORARY),
        VarDecl("s", (512, 128), f, TEMPORARY),
        VarDecl("w", (70, 128), f, TEMPORARY),
        VarDecl("y", (512, 70), f, TEMPORARY),
        VarDecl("z", (512, 128), f, TEMPORARY),
        *(VarDecl(n, (512, 64), f, TEMPORARY, view=v) for n, v in view.items()),
    ]
    ops = [
        OpNode("assign", {"x": ("x.a",)}, {"out": ("s.a",)}),
        OpNode("assign", {"x": ("x.b",)}, {"out": ("s.b",)}),
        *middle,
        OpNode("matmul", {"x": ("s",), "y": ("w",)}, {"out": ("y",)}, {"transpose_y": True}),
        *after,
    ]
    return OpList("n", vars=variables, ops=ops)


def test_operators():
    (op,) = read_in_place(_net()).ops
    assert op.type == "nnet3.spliced_matmul" and op.inputs == {"x": ("x.a", "x.b"), "w": ("w",)}


@pytest.mark.parametrize(
    "changed",
    [
        {"middle": [OpNode("relu", {"x": ("x",)}, {"out": ("x",)})]},  # the source is written
        {"middle": [OpNode("relu", {"x": ("s",)}, {"out": ("z",)})]},  # the copy is read
        {"after": [OpNode("relu", {"x": ("s.b",)}, {"out": ("z",)})]},
        {"middle": [OpNode("relu", {"x": ("s.a",)}, {"out": ("s.a",)})]},
    ],
)
def test_stays(changed):
    net = _net(**changed)
    assert read_in_place(net) is net
