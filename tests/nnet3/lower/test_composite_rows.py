"""Composite components work through pieces of `max_rows_process` rows, one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, PARAMETER, STATE
from opscope.framework.ir.names import grad_name
from opscope.framework.runtime.plain_net import PlainNet
from opscope.nnet3.cache.computations import CachingCompiler
from opscope.nnet3.graph.request import ComputationRequest, IoSpecification
from opscope.nnet3.lower.commands import lower_computation
from opscope.nnet3.lower.composite_rows import split_composites
from opscope.nnet3.network.nnet import Nnet

AFFINE = "type=NaturalGradientAffineComponent input-dim=5 output-dim=5 rank-in=2 rank-out=2"
CONFIG = f"""input-node name=input dim=5
component name=c type=CompositeComponent max-rows-process={{most}} num-components=3 \
component1='{AFFINE}' component2='type=BatchNormComponent dim=5' component3='{AFFINE}'
component-node name=c component=c input=input
output-node name=output input=c
"""


def request(rows):
    indexes = np.array([[n, 0, 0] for n in range(rows)])
    ios = [IoSpecification("input", indexes, True)], [IoSpecification("output", indexes, True)]
    return ComputationRequest(*ios, need_model_derivative=True)


class Runs:
    """Steps of one network over a scope that keeps parameters and what natural gradient knows."""

    def __init__(self, most):
        self.nnet = Nnet.from_config_text(CONFIG.format(most=most), 0)
        self.shared = Scope()

    def run(self, x, deriv):
        computation = CachingCompiler(self.nnet).compile(request(len(x)))
        desc = lower_computation(computation, natural_gradient=True)
        for var in desc.vars:
            if var.kind in (PARAMETER, STATE) and var.name not in self.shared:
                if var.kind == STATE:
                    value = var.initializer.attrs["value"]
                else:
                    path = var.name.removeprefix("c/").split(".")
                    part = self.nnet.components["c"].components[int(path[0])]
                    value = getattr(part, path[1])
                self.shared.var(var.name).set(np.array(value), dtype=var.dtype)
        scope = Scope(None, parent=self.shared)
        given = {"input.input": x, "output_deriv.output": deriv}
        for var in desc.vars:
            if var.kind == INPUT:
                scope.var(var.name).set(given[var.name])
        PlainNet(desc).run(scope)
        names = [v.name for v in desc.vars if v.kind == PARAMETER]
        grads = {name: scope.numpy(grad_name(name)).copy() for name in names}
        return [scope.numpy(n).copy() for n in ("output.output", "input_deriv.input")], grads


@pytest.mark.parametrize("rows", [8, 20, 24])
def test_each_piece_is_computed_and_preconditioned_on_its_own(rows):
    rng = np.random.default_rng(rows)
    batches = rng.normal(size=(6, 2, rows, 5)).astype(np.float32)
    whole, pieces = Runs(8), Runs(1000)
    for x, deriv in batches:
        values, grads = whole.run(x, deriv)
        parts = [pieces.run(x[i : i + 8], deriv[i : i + 8]) for i in range(0, rows, 8)]
        for number, value in enumerate(values):
            expected = np.concatenate([part[0][number] for part in parts])
            np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
        for name, grad in grads.items():
            expected = sum(part[1][name] for part in parts)
            np.testing.assert_allclose(grad, expected, rtol=1e-4, atol=1e-4)
    assert len(grads) == 4


def test_few_rows_and_other_networks_are_left_alone():
    nnet = Nnet.from_config_text(CONFIG.format(most=8), 0)
    computation = CachingCompiler(nnet).compile(request(8))
    unchanged, places = split_composites(computation)
    assert unchanged is computation and list(places) == list(range(len(computation.commands)))
    split, _ = split_composites(CachingCompiler(nnet).compile(request(17)))
    assert sum(c.type == "Propagate" for c in split.commands) == 3
    assert sum(c.type == "Backprop" for c in split.commands) == 3
