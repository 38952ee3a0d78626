"""Random nets: every way to run one gives the same numbers; the guilty switch or pass is named."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from opscope import options
from opscope.framework.base.scope import Scope
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.printer import net_text
from opscope.framework.passes.cleanup import cleanup_passes
from opscope.framework.passes.pipeline import run_passes
from opscope.framework.passes.verify.verifier import problems
from opscope.framework.runtime.net import Net
from random_nets import RandomNet, random_net, results

SWITCHES = ("fuse", "reuse", "inplace")
SEEDS = range(12)


class Ways:
    """Runs a net with some switches and passes on, all others off."""

    def __init__(self, passes=None):
        self.passes = {one.name: one for one in passes or cleanup_passes()}
        self.names = (*SWITCHES, *self.passes)

    def run(self, net: RandomNet, on):
        chosen = [one for name, one in self.passes.items() if name in on]
        with options(**{name: name in on for name in SWITCHES}):
            return results(net, run_passes(net.desc, chosen))

    def compare(self, net: RandomNet, tolerance: float) -> None:
        """All on against all off; on a difference, look for those that make it."""
        plain = self.run(net, ())
        if not differences(plain, self.run(net, self.names), tolerance):
            return
        alone = [n for n in self.names if differences(plain, self.run(net, (n,)), tolerance)]
        without = [
            name
            for name in self.names
            if not differences(
                plain, self.run(net, [n for n in self.names if n != name]), tolerance
            )
        ]
        bad = differences(plain, self.run(net, self.names), tolerance)
        raise AssertionError(
            f"results differ: {bad}; wrong with only one of these on: {alone or 'none'};"
            f" right without one of these: {without or 'none'}\n{net_text(net.desc)}"
        )


def differences(one, other, tolerance):
    """Names of results that differ by more than `tolerance`, relative to their largest value."""
    bad = []
    for name, value in one.items():
        scale = max(float(np.abs(value).max(initial=0)), 1.0)
        gap = np.abs(value - other[name]).max(initial=0) if value.size else 0.0
        if not gap <= tolerance * scale:
            bad.append(name)
    return bad


@pytest.mark.parametrize("seed", SEEDS)
def test_plan_switches_and_passes_change_no_number(seed):
    Ways().compare(random_net(seed), 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_switches_change_no_bit(seed):
    ways = Ways(passes=())
    net = random_net(seed, dtype="float32")
    plain = ways.run(net, ())
    for on in (("reuse",), ("inplace",), ("reuse", "inplace")):
        assert not differences(plain, ways.run(net, on), 0.0), f"{on}\n{net_text(net.desc)}"


@pytest.mark.parametrize("seed", SEEDS)
def test_partial_runs_equal_the_whole(seed):
    net = random_net(seed)
    whole = results(net)
    rng = np.random.default_rng(seed)
    count = len(net.desc.ops)
    for _ in range(3):
        cuts = tuple(sorted(int(cut) for cut in rng.integers(0, count + 1, size=2)))
        bad = differences(whole, results(net, cuts=cuts), 1e-9)
        assert not bad, f"{bad} differ with cuts at {cuts}\n{net_text(net.desc)}"


@pytest.mark.parametrize("seed", SEEDS)
def test_random_nets_are_sound(seed):
    errors = [one for one in problems(random_net(seed).desc) if one.severity == "error"]
    assert errors == []


@pytest.mark.parametrize("seed", range(10))
def test_gradients_of_smooth_random_nets(seed):
    net = random_net(seed, smooth=True)
    if not net.has_gradient:
        pytest.skip("no parameter on the way")
    made = Net.create(net.desc)
    rng = np.random.default_rng(seed)
    names = [name for name in net.results if name in net.values]
    direction = {name: rng.normal(size=net.values[name].shape) for name in names}

    def loss(step):
        scope = Scope()
        moved = {name: net.values[name] + step * direction[name] for name in names}
        scope.feed(net.values | moved)
        made.run(scope, None, 0, made.last_forward_op + 1)
        return float(scope.numpy("loss"))

    step = 1e-5
    numeric = (loss(step) - loss(-step)) / (2 * step)
    # one step of plain descent: parameter - 0.1 * gradient
    after = results(net, runs=1)
    analytic = sum(
        float(((net.values[name] - after[name]) / np.float32(0.1) * direction[name]).sum())
        for name in names
    )
    assert numeric == pytest.approx(analytic, rel=1e-6, abs=1e-7)


@dataclasses.dataclass(frozen=True)
class Guilty:
    """Computes wrongly: the product in the end becomes a sum."""

    name: str = "guilty"

    def apply(self, desc: OpList) -> OpList:
        made = desc.copy()
        made.ops = [
            op.changed(type="add") if op.output_names()[0] == "kept" else op for op in desc.ops
        ]
        return made


def test_the_search_names_the_guilty_pass():
    with pytest.raises(AssertionError) as caught:
        Ways(passes=(*cleanup_passes(), Guilty())).compare(random_net(0), 1e-9)
    message = str(caught.value)
    assert "only one of these on: ['guilty']" in message
    assert "right without one of these: ['guilty']" in message and "%0 " in message
