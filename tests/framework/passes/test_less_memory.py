"""Choices of what is computed again or moved to the host: less memory, the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.ir.desc import BACKWARD, FORWARD
from opscope.framework.ir.op_list import OpList
from opscope.framework.passes.memory.less_memory import Chooser, LessMemory
from opscope.framework.passes.verify.verifier import verify
from opscope.framework.runtime.plain_net import PlainNet
from random_nets import random_net, results


def deep(depth: int = 8) -> tuple[NetBuilder, Scope]:
    b, scope = NetBuilder("deep"), Scope()
    h = b.input("x", [-1, 16])
    for _ in range(depth):
        h = b.fc(h, size=16, activation="gelu")
    b.mean(b.square(h), name="loss")
    b.backward_from("loss")
    b.initialize(scope, OpContext(seed=0))
    scope.feed({"x": np.random.default_rng(0).normal(size=(200, 16)).astype(np.float32)})
    return b, scope


def chooser(net: PlainNet, scope: Scope, live_out: list[str], to_host: bool) -> Chooser:
    plan = net.plan(scope, OpContext(live_out=live_out))
    return Chooser(net.op_list, plan.specs, plan.placement.keys(), live_out, to_host=to_host)


def golden(net: OpList) -> list[str]:
    return [
        f"{op.type} {' '.join(op.input_names())} -> {' '.join(op.output_names())}"
        for op in net.ops
        if any("@AGAIN" in name or "@HOST" in name for name in op.output_names())
    ]


def test_each_choice_takes_less() -> None:
    b, scope = deep()
    found = list(chooser(b.net, scope, ["loss"], False).choices())
    peaks = [peak for peak, _ in found]
    assert peaks == sorted(peaks, reverse=True) and len(set(peaks)) == len(peaks)
    assert not found[0][1].repeated
    # Of 16 activations that wait for gradients fewer than half are left.
    assert peaks[-1] < 0.55 * peaks[0]
    assert not any(done.moved for _, done in found)


def test_cheap_operators_are_repeated_first() -> None:
    b, scope = deep()
    ops = b.net.op_list.ops
    choices = chooser(b.net, scope, ["loss"], False).choices()
    repeated = [set(done.repeated) for _, done in choices]
    types = [{ops[number].type for number in numbers} for numbers in repeated]
    first = next(kinds for kinds in types if kinds)
    assert first == {"gelu_erf"} and "affine" in types[-1]


def test_a_segment_between_kept_variables_is_repeated() -> None:
    b, _ = deep(3)
    numbers = [n for n, op in enumerate(b.net.op_list.ops) if op.role == FORWARD][1:5]
    first = next(n for n, op in enumerate(b.net.op_list.ops) if op.role == BACKWARD)
    net = LessMemory(dict.fromkeys(numbers, first)).apply(b.net.op_list)
    verify(net)
    assert golden(net) == [
        "gelu_erf fc_0@INNER@LINEAR -> fc_0@AGAIN",
        "affine fc_0@AGAIN fc_1.w fc_1.b -> fc_1@INNER@LINEAR@AGAIN",
        "gelu_erf fc_1@INNER@LINEAR@AGAIN -> fc_1@AGAIN",
        "affine fc_1@AGAIN fc_2.w fc_2.b -> fc_2@INNER@LINEAR@AGAIN",
    ]


def test_a_variable_waits_on_the_host() -> None:
    b, scope = deep()
    first = next(n for n, op in enumerate(b.net.op_list.ops) if op.role == BACKWARD)
    net = LessMemory({}, {"fc_0": first}).apply(b.net.op_list)
    verify(net)
    ticket = "fc_0@HOST@TICKET"
    assert golden(net) == [
        f"to_host_start fc_0 -> {ticket}",
        f"to_host_wait fc_0 {ticket} -> fc_0@HOST@WAITED",
        f"from_host_start fc_0 {ticket} -> fc_0@HOST@LENT",
        f"from_host_wait fc_0@HOST@LENT {ticket} -> fc_0@AGAIN",
    ]
    types = [op.type for op in net.ops]
    at = [types.index(op.split()[0]) for op in golden(net)]
    # Other operators run between the parts of a copy, and the next reader comes right behind.
    assert at[0] + 2 < at[1] < at[2] < at[3] - 2
    assert "fc_0@AGAIN" in net.ops[at[3] + 1].input_names()
    context = OpContext(live_out=["loss", "fc_0.w@GRAD", "fc_1.w@GRAD"])
    values = []
    for own in (b.net, PlainNet(net, check=False, packed=True)):
        own.run(scope, context)
        values.append([scope.numpy(name).copy() for name in sorted(context.live_out or ())])
    for one, other in zip(*values, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_variable_that_is_used_all_the_time_stays() -> None:
    b, _ = deep(1)
    net = LessMemory({}, {"loss": 1, "fc_0": 2}).apply(b.net.op_list)
    assert golden(net) == []


@pytest.mark.parametrize("to_host", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_random_nets_change_no_bit(seed: int, to_host: bool) -> None:
    net = random_net(seed)
    plain = PlainNet(net.desc, check=False)
    scope = Scope()
    scope.feed(net.values)
    want = results(net)
    for _, done in list(chooser(plain, scope, list(net.results), to_host).choices())[-2:]:
        changed = done.apply(plain.op_list)
        verify(changed)
        for name, value in results(net, changed).items():
            np.testing.assert_array_equal(value, want[name], err_msg=name)


def test_some_random_nets_are_changed() -> None:
    changed = {"repeated": 0, "moved": 0}
    for seed in range(40):
        net = random_net(seed)
        plain, scope = PlainNet(net.desc, check=False), Scope()
        scope.feed(net.values)
        done = list(chooser(plain, scope, list(net.results), True).choices())[-1][1]
        changed["repeated"] += bool(done.repeated)
        changed["moved"] += bool(done.moved)
    assert min(changed.values()) >= 5, changed
