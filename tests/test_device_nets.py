"""Nets of every kind and front end on the stand-in of CuPy: they have the numbers of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from cntk_runtime_nets import Builder, minibatch
from kaldi_data import FOLDER, difference, need, read_archive, run_recorded
from nnet3_runs import assert_same, computed, random_net, request_for
from opscope.framework.base.backend import on_device
from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import RunError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.kernel_args import RunState
from opscope.framework.runtime.initialize import initialize
from opscope.nnet3.egs.merging import merge_examples
from opscope.nnet3.egs.rows import example_io
from opscope.nnet3.files.examples import NnetExample
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.inference.pipeline import compile_computation, compile_request
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.network.simple_request import simple_request
from opscope.nnet3.optimize import optimize
from opscope.nnet3.run.computer import NnetComputer
from opscope.nnet3.training import NnetTrainer, NnetTrainerOptions
from opscope.nnet3.xconfig import xconfig_to_config
from opscope.python_api.builder import NetBuilder
from opscope.python_api.generate.generation import Generator
from opscope.testing.device_double import DOUBLE, by_default, crossings
from opscope.testing.device_raw import lanes
from rnn_nets import gradients, packed, simple
from small_nets import classifier, data
from training_runs import run, same, values
from tree_cells import binary_desc, binary_values, weighed_desc, weighed_values
from tree_nets import random_trees, run_tree

CASES = sorted(path.parent.name for path in FOLDER.glob("random_nets/*/io.ark"))[::12]
CASES = CASES or ["case_0000"]


def assert_equal_on_both(compute, tolerance=1e-6):
    """What `compute()` finds, arrays by name, on the CPU and on the double."""
    wanted = compute()
    with by_default():
        found = compute()
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, tolerance, tolerance, err_msg=name)


# -- the framework ---------------------------------------------------------------------------------


def test_training():
    start = Scope()
    initialize(classifier(dropout=0.0).desc, start, OpContext(seed=1))

    def train():
        scope = Scope()
        scope.feed(values(start))
        run(scope, classifier(dropout=0.0), epochs=2)
        return values(scope)

    assert_equal_on_both(train, 1e-4)


def test_resuming_is_exact(tmp_path):
    """With dropout: a GPU's random numbers follow from what a checkpoint holds."""
    with by_default():
        straight, parts, again = Scope(), Scope(), Scope()
        run(straight, epochs=3)
        run(parts, epochs=1, checkpoint=tmp_path / "run")
        run(again, epochs=3, checkpoint=tmp_path / "run", resume=True, seed=99)
        assert same(values(again), values(straight))


def test_a_step_asks_the_device_for_nothing():
    with by_default():
        net, scope = classifier(), Scope()
        initialize(net.desc, scope)
        batch = {name: array[:16] for name, array in data().items()}
        for _ in range(3):
            scope.feed(batch)
            crossings.clear()
            net.run(scope)
    assert not crossings


def test_a_label_that_is_none_is_found_when_results_are_read():
    with by_default():
        net, scope = classifier(), Scope()
        initialize(net.desc, scope)
        batch = {name: array[:16] for name, array in data().items()}
        wrong = batch["label"].copy()
        wrong[[3, 5]] = 7, -1
        for label in (wrong, batch["label"]):  # a run that is well does not hide the one before
            scope.feed({**batch, "label": label})
            net.run(scope)
        with pytest.raises(RunError, match="label 'label' holds 7 at sample 3, want 0 .. 2"):
            scope.numpy("w0")
        net.run(scope)
        assert np.isfinite(scope.numpy("w0")).all()


def test_what_several_operators_read_is_fetched_once_a_run():
    with by_default() as xp, on_device(DOUBLE):
        state, rate = RunState(DOUBLE), xp.asarray([0.5])
        for value in (0.5, 0.25):
            rate.fill(value)
            state.context = OpContext()
            crossings.clear()
            assert [state.fetched(rate)[0] for _ in range(2)] == [value] * 2
            assert crossings == ["get"]


@pytest.mark.parametrize("way", ["fast", "steps"])
def test_recurrent(way, monkeypatch):
    monkeypatch.setenv("OPSCOPE_RECURRENT", way)
    rng = np.random.default_rng(0)
    given = {
        "xs": packed(rng, [2, 4, 0, 1], 5),
        "u": rng.normal(size=(5, 3)),
        "w": rng.normal(size=(3, 3)),
        "h0": rng.normal(size=(4, 3)),
    }
    desc = simple(reverse=True, memory={"boot": "h0", "final": "last", "delay": 2})
    assert_equal_on_both(lambda: gradients(desc, given, ["ys", "last"], ["xs", "u", "w", "h0"]))


@pytest.mark.parametrize(
    "desc, values, arity", [(binary_desc, binary_values, 2), (weighed_desc, weighed_values, 0)]
)
def test_recursive(desc, values, arity):
    rng = np.random.default_rng(1)
    parents, offsets = random_trees(rng, [5, 1, 9], arity=arity)
    given = values(rng, parents, 3)
    assert_equal_on_both(lambda: run_tree(desc(), given, ["OUT", "ROOT"], offsets))


def test_layers_and_generation():
    b = NetBuilder("model")
    ids = b.input("ids", [-1], "int64", levels=1)
    states, _ = b.lstm(b.embedding(ids, [5, 4]), 6, name="rnn")
    b.fc(states, size=5, name="scores")
    start = Scope()
    b.initialize(start, OpContext(seed=3))
    held = {var.name: start.numpy(var.name) for var in b.desc.vars if var.name in start}

    def compute():
        scope = Scope()
        scope.feed(held)
        made = Generator(b, scope).beam([[1, 2], [4]], 4, width=2)
        return {f"{n}": [*best[0].tokens, best[0].log_prob] for n, best in enumerate(made)}

    assert_equal_on_both(compute)


def test_transformers_and_losses_of_sequences():
    b = NetBuilder("model", dtype="float64")
    text = b.input("text", [-1], "int64", levels=1)
    x = b.positional_encoding(b.embedding(text, [20, 8], init="xavier"))
    x = b.transformer_encoder(x, layers=1, heads=2, rotary=True, dropout=0.0)
    y = b.transformer_decoder(x, x, layers=1, heads=2, norm_first=True, dropout=0.0)
    scores, label = b.fc(b.sequence_pool(y), size=4), b.input("label", [-1], "int64")
    one = b.cross_entropy_loss(scores, label, weight=[1.0, 2.0, 1.0, 3.0], label_smoothing=0.1)
    two = b.softmax_focal_loss(scores, label)
    spelt = b.ctc_loss(b.fc(y, size=5), b.input("spelt", [-1], "int64", levels=1))
    b.backward_from(one + two + b.mean(spelt))
    start = Scope()
    b.initialize(start, OpContext(seed=3))
    held = {var.name: start.numpy(var.name) for var in b.desc.vars if var.name in start}
    rng = np.random.default_rng(0)
    feed = {"text": [rng.integers(0, 20, n) for n in (3, 7, 4)], "spelt": [[1, 2], [3], []]}
    feed["label"] = np.array([0, -100, 3])

    def compute():
        scope = Scope()
        scope.feed(held)
        fetch = [one.name, two.name, spelt.name, *b.gradients.values()]
        return b.run(scope, feed=feed, fetch=fetch)

    assert_equal_on_both(compute, 1e-9)


# -- nnet3 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_nnet3(seed):
    nnet = random_net(seed)
    computation = optimize(compile_computation(nnet, request_for(nnet)))
    wanted = computed(computation, nnet)
    with by_default():
        assert_same(computed(computation, nnet), wanted)


def test_nnet3_recurrences_of_many_steps():
    text = (
        "input name=input dim=4\nfast-lstmp-layer name=a cell-dim=4 recurrent-projection-dim=2"
        " non-recurrent-projection-dim=2 delay=-1\nlstm-layer name=b cell-dim=4 delay=2\n"
        "output-layer name=output dim=3 param-stddev=1\n"
    )
    nnet = Nnet.from_config_text(xconfig_to_config(text), 1)
    request = simple_request(nnet, frames=130)

    def compute():
        computer = NnetComputer(compile_request(nnet, request), nnet)
        computer.accept_input("input", np.random.default_rng(0).normal(size=(130, 4)))
        computer.run()
        return {"output": computer.get_output("output")}

    assert [op.type for op in compile_request(nnet, request).ops].count("recurrent") == 2
    assert_equal_on_both(compute)


@pytest.mark.parametrize("threads", [1, 4])
def test_nnet3_training(threads):
    """Natural gradient, self-repair, bounds on changes, momentum."""
    start = Nnet.from_config_text(
        "input-node name=input dim=4\n"
        "component name=a type=NaturalGradientAffineComponent input-dim=8 output-dim=6\n"
        "component-node name=a component=a input=Append(Offset(input, -1), input)\n"
        "component name=r type=SigmoidComponent dim=6 self-repair-scale=0.1\n"
        "component-node name=r component=r input=a\n"
        "component name=n type=BatchNormComponent dim=6\n"
        "component-node name=n component=n input=r\n"
        "component name=b type=NaturalGradientAffineComponent input-dim=6 output-dim=3\n"
        "component-node name=b component=b input=n\n"
        "output-node name=output input=b objective=quadratic\n",
        1,
    )

    def compute():
        rng, nnet = np.random.default_rng(0), start.copy()
        options = NnetTrainerOptions(momentum=0.5, max_param_change=0.1)
        trainer = NnetTrainer(options, nnet, log=[].append)
        for _ in range(4):
            rows = rng.normal(size=(11, 4)).astype(np.float32), rng.normal(size=(10, 3))
            parts = [example_io("input", rows[0], -1), example_io("output", rows[1])]
            trainer.train(merge_examples([NnetExample(parts)] * 2))
        trainer.store()
        return {"all": nnet.vectorize()}

    with lanes(threads):
        assert_equal_on_both(compute, 1e-4)


@pytest.mark.parametrize("case", CASES)
def test_networks_of_kaldi(case):
    folder = need("random_nets", case)
    nnet = Nnet.read(folder / "model.raw")
    request = ComputationRequest.parse((folder / "request.txt").read_text())
    io, grad = read_archive(folder / "io.ark"), read_archive(folder / "grad.ark")
    with by_default():
        computer = NnetComputer(compile_request(nnet, request, True), nnet, DOUBLE)
        run_recorded(computer, io)
        assert difference(computer.model_derivative(), grad["model_deriv"]) < 1e-4
        assert difference(computer.get_output("output"), io["output.output"]) < 1e-4


# -- CNTK ------------------------------------------------------------------------------------------


def test_cntk():
    def compute():
        b = Builder()
        x = b.add("InputValue", "x", shape=2)
        before = b.add("PastValue", "before", shape=3, timeStep=2)
        own = b.add("Times", "own", b.parameter("R", 3, 3), before)
        up = b.add("Times", "up", b.parameter("W", 3, 2), x)
        h = b.add("Tanh", "h", b.add("Plus", "z", up, own))
        b.network.connect(before, [h])
        b.criterion(h)
        net = b.net()
        net.forward_backward(minibatch(x=b.rng.normal(size=(10, 2))), "total")
        return {name: net.gradient(name) for name in net.parameters()}

    assert_equal_on_both(compute)
