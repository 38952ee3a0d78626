"""Cheap activations that are computed again: the same numbers, less memory."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.ir.desc import BACKWARD, PARAMETER
from opscope.framework.ir.op_list import OpList, View
from opscope.framework.passes.memory.recompute import Recompute
from opscope.framework.passes.verify.verifier import verify
from random_nets import random_net, results

X = np.random.default_rng(0).normal(size=(96, 24)).astype(np.float32)


def layers(recompute: bool, dropout: float = 0.0, depth: int = 4) -> NetBuilder:
    b = NetBuilder("layers")
    h = b.input("x", [-1, 24])
    for _ in range(depth):
        h = b.fc(h, size=32, activation="gelu")
        if dropout:
            h = b.dropout(h, p=dropout)
    cost = b.mean(b.square(b.fc(b.layer_norm(h), size=2)), name="cost")
    b.backward_from(cost, recompute=recompute)
    b.add_optimization(0.05, "momentum")
    return b


def trained(b: NetBuilder, train: bool = True) -> tuple[list[np.ndarray], int]:
    """Parameters and the cost after some steps, and the bytes of temporaries."""
    scope = Scope()
    b.initialize(scope, OpContext(seed=3))
    context = OpContext(seed=5, train=train)
    costs = [b.run(scope, feed={"x": X}, fetch=["cost"], context=context)["cost"] for _ in range(4)]
    names = sorted(var.name for var in b.net.vars.values() if var.kind == PARAMETER)
    frame = b.net.frame(scope, context)
    return [*costs, *(scope.numpy(name) for name in names)], sum(frame.plan.blocks)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("train", [True, False])
def test_a_builder_trains_the_same_in_less_memory(dropout: float, train: bool) -> None:
    kept, before = trained(layers(False, dropout), train)
    again, after = trained(layers(True, dropout), train)
    for one, other in zip(kept, again, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
    assert after < (0.75 if not dropout else 0.95) * before


def golden(net: OpList) -> list[str]:
    return [
        f"{op.type} {' '.join(op.input_names())} -> {' '.join(op.output_names())}"
        for op in net.ops
        if op.role == BACKWARD
        and any("@AGAIN" in n for n in (*op.input_names(), *op.output_names()))
    ]


def test_what_it_writes() -> None:
    b = NetBuilder("one")
    h = b.fc(b.input("x", [-1, 3]), size=4, activation="gelu", name="h")
    b.backward_from(b.mean(b.fc(b.dropout(h, p=0.5), size=1), name="cost"))
    net = Recompute().apply(b.op_list)
    verify(net)
    linear, mask = "h@INNER@LINEAR", "dropout_0.mask"
    assert golden(net) == [
        f"gelu_erf {linear} -> h@AGAIN",
        f"dropout_grad h@AGAIN {mask} h@AGAIN -> dropout_0@AGAIN",
        "affine_grad dropout_0@AGAIN fc_0.w fc_0.b fc_0@GRAD"
        " -> dropout_0@GRAD fc_0.w@GRAD fc_0.b@GRAD",
        f"dropout_grad h@AGAIN {mask} dropout_0@GRAD -> h@GRAD",
    ]


def test_results_are_kept() -> None:
    b = layers(False)
    names = tuple(
        name for op in b.op_list.ops if op.type == "gelu_erf" for name in op.output_names()
    )
    assert len(names) == 4
    left = Recompute(live_out=names).apply(b.op_list)
    assert not any("gelu" in line for line in golden(left))
    assert any("gelu" in line for line in golden(Recompute().apply(b.op_list)))


@pytest.mark.parametrize("seed", range(40))
def test_random_nets_change_no_number(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_FUSE", "0")  # nothing to compile
    net = random_net(seed)
    again = Recompute(live_out=tuple(net.results)).apply(net.desc)
    verify(again)
    found, want = results(net, again), results(net)
    for name, value in want.items():
        scale = max(float(np.abs(value).max(initial=0)), 1.0)
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-9 * scale, err_msg=name)


def test_some_random_net_is_changed() -> None:
    changed = 0
    for seed in range(40):
        net = random_net(seed)
        changed += len(Recompute().apply(net.desc).ops) > len(net.desc.ops)
    assert changed >= 5


def test_a_view_is_left() -> None:
    """Memory of a base may be written by somebody else."""
    b = NetBuilder("plain")
    b.backward_from(b.mean(b.square(b.gelu(b.input("x", [-1, 4]), name="t")), name="cost"), wrt="x")
    whole = b.op_list
    assert golden(Recompute().apply(whole)) != []
    views = [
        var.changed(view=View("whole", 0, -1, 0, -1)) if var.name == "t" else var
        for var in whole.vars
    ]
    whole.vars = views
    assert golden(Recompute().apply(whole)) == []
