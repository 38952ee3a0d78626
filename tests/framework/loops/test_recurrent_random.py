"""Random step nets: the fast program and the step scopes give the same numbers and gradients."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.ir.printer import net_text
from opscope.framework.loops.recurrent import net as recurrent_net
from opscope.framework.loops.recurrent.stages import RecurrentProgram
from random_steps import Maker
from rnn_nets import check_gradients, fill, gradients, run, with_loss


@pytest.mark.parametrize("seed", range(24))
def test_both_ways_agree(seed, monkeypatch):
    made = Maker(seed)
    runs = {}
    for way in ("steps", "fast"):
        monkeypatch.setenv("OPSCOPE_RECURRENT", way)
        runs[way] = run(made.desc, made.values, made.results)
        runs[way] |= {
            f"{name}'": value
            for name, value in gradients(
                made.desc, made.values, made.results, list(made.values)
            ).items()
        }
    assert runs["steps"].keys() == runs["fast"].keys()
    for name, value in runs["steps"].items():
        scale = max(float(np.abs(value).max(initial=0)), 1.0)
        gap = float(np.abs(value - runs["fast"][name]).max(initial=0))
        assert gap <= 1e-10 * scale, f"{name} differs by {gap}\n{net_text(made.desc)}"


@pytest.mark.parametrize("seed", range(0, 60, 12))
def test_gradients(seed):
    made = Maker(seed)
    names = [name for name in made.values]
    check_gradients(made.desc, made.values, made.results, names)


@pytest.mark.parametrize("seed", range(0, 60, 8))
def test_one_scope_for_many_batches(seed):
    """What is bound for one batch serves the next, whatever its lengths are."""
    made, scope = Maker(seed), Scope()
    net = with_loss(made.desc, made.values, made.results)
    names = net.add_backward_ops("loss", list(made.values))
    context = OpContext(live_out=[*made.results, *names.values()], seed=1)
    for lengths in ([2, 3], [3, 2, 1], [4, 4], [1], [5, 0, 2], [2, 3], [3, 3], [4, 4], [6, 1, 1]):
        made.draw(lengths)
        fill(scope, made.values)
        net.run(scope, context)
        found = {name: scope.numpy(name) for name in made.results}
        found |= {f"{name}'": scope.numpy(grad) for name, grad in names.items()}
        wanted = run(made.desc, made.values, made.results)
        grads = gradients(made.desc, made.values, made.results, list(made.values))
        wanted |= {f"{name}'": value for name, value in grads.items()}
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-10, err_msg=name)


def test_the_fast_program_is_what_runs(monkeypatch):
    used = []
    monkeypatch.setattr(
        recurrent_net,
        "RecurrentProgram",
        lambda *args: used.append(args) or RecurrentProgram(*args),
    )
    made = Maker(1)
    gradients(made.desc, made.values, made.results, list(made.values))
    assert len(used) == 2
