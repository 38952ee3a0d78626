"""NnetTrainer: steps against plain gradients, its state, and what it refuses and reports."""

import json
import re

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError, FormatError, ShapeError
from opscope.kaldi.files.sparse import SparseMatrix, to_dense
from opscope.nnet3.compiler.verbose import Verbose, telling
from opscope.nnet3.egs.merging import merge_examples
from opscope.nnet3.egs.rows import example_io
from opscope.nnet3.files.examples import NnetExample, NnetIo
from opscope.nnet3.graph.graph import NotComputableError
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.training import NnetTrainer, NnetTrainerOptions
from opscope.nnet3.training.compute_prob import NnetComputeProb, NnetComputeProbOptions
from opscope.nnet3.training.progress import ObjectiveInfo

LAYERS = """input-node name=input dim=4
component name=a type={affine} input-dim=12 output-dim=6 {extra}
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component name=r type=SigmoidComponent dim=6 self-repair-scale=0.1
component-node name=r component=r input=a
component name=d type=DropoutComponent dim=6 dropout-proportion={dropout}
component-node name=d component=d input=r
component name=b type={affine} input-dim=6 output-dim=3 {last}
component-node name=b component=b input=d
component name=s type=LogSoftmaxComponent dim=3
component-node name=s component=s input=b
output-node name=output input={output} objective={objective}
"""


def network(
    affine="NaturalGradientAffineComponent",
    extra="",
    last="",
    dropout=0.0,
    output="s",
    objective="linear",
):
    return Nnet.from_config_text(LAYERS.format(**locals()), 1)


def examples(count=6, size=4, frames=5):
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        batch = []
        for _ in range(size):
            labels = rng.integers(0, 3, frames)
            features = rng.normal(size=(frames + 2, 4)).astype(np.float32)
            features[1:-1, :3] += 2 * np.eye(3)[labels]
            targets = SparseMatrix.from_dense(np.eye(3)[labels])
            batch.append(
                NnetExample([example_io("input", features, -1), example_io("output", targets)])
            )
        made.append(merge_examples(batch))
    return made


def trained(nnet, batches, seed=0, **options):
    trainer = NnetTrainer(NnetTrainerOptions(**options), nnet, seed=seed, log=[].append)
    for batch in batches:
        trainer.train(batch)
    trainer.store()
    return trainer


def gradient(nnet, batch):
    prob = NnetComputeProb(nnet, NnetComputeProbOptions(compute_deriv=True))
    prob.compute(batch)
    return prob.deriv


def test_one_step_is_the_gradient():
    nnet = network("AffineComponent", "l2-regularize=0.1")
    nnet.components["r"].self_repair_scale = 0.0
    nnet.components["b"].set_learning_rate(0.5)
    before, (batch,) = nnet.vectorize(), examples(1)
    deriv = gradient(nnet, batch)
    size = nnet.components["a"].num_parameters
    deriv[:size] = 0.001 * (deriv[:size] - 2 * 4 * 3 * 0.1 * before[:size])
    deriv[size:] *= 0.5
    trained(nnet, [batch], max_param_change=0.0, l2_regularize_factor=3.0)
    np.testing.assert_allclose(nnet.vectorize() - before, deriv, rtol=1e-3, atol=1e-6)


def test_quadratic_objective():
    nnet = network("AffineComponent", output="b", objective="quadratic")
    nnet.components["r"].self_repair_scale = 0.0
    before, (batch,) = nnet.vectorize(), examples(1)
    deriv = gradient(nnet, batch)
    trainer = trained(nnet, [batch], max_param_change=0.0)
    np.testing.assert_allclose(nnet.vectorize() - before, 0.001 * deriv, rtol=1e-3, atol=1e-6)
    assert trainer.objectives["output"].weight == 20  # rows


def test_momentum():
    nnet = network("AffineComponent")
    nnet.components["r"].self_repair_scale = 0.0
    batches = examples(2)
    start = nnet.vectorize()
    first = gradient(nnet, batches[0])
    one = nnet.copy()
    trained(one, batches[:1], momentum=0.5)
    np.testing.assert_allclose(one.vectorize() - start, 0.5e-3 * first, rtol=1e-3, atol=1e-6)
    second = gradient(one, batches[1])
    trained(nnet, batches, momentum=0.5)
    wanted = 0.5e-3 * (first + (0.5 * first + second))
    np.testing.assert_allclose(nnet.vectorize() - start, wanted, rtol=2e-3, atol=1e-6)


def test_backstitch():
    nnet = network("AffineComponent")
    nnet.components["r"].self_repair_scale = 0.0
    (batch,) = examples(1)
    start, back = nnet.vectorize(), nnet.copy()
    back.unvectorize((start - 0.3e-3 * gradient(nnet, batch)).astype(np.float32))
    wanted = back.vectorize() + 1.3e-3 * gradient(back, batch)
    trainer = trained(nnet, [batch], backstitch_training_scale=0.3)
    np.testing.assert_allclose(nnet.vectorize() - start, wanted - start, rtol=2e-3, atol=1e-6)
    assert set(trainer.objectives) == {"output", "output_backstitch"}


def test_backstitch_draws_the_same_masks():
    """With so small a scale both steps see the same parameters, and the same objective."""
    nnet, (batch,) = network(dropout=0.5), examples(1)
    trainer = trained(nnet, [batch], backstitch_training_scale=1e-6)
    one, other = (info.objective for info in trainer.objectives.values())
    assert one == pytest.approx(other, rel=1e-5)


def test_changes_are_bounded():
    nnet = network("AffineComponent", "max-change=0.01")
    nnet.components["a"].set_learning_rate(100)
    before = nnet.components["a"].vectorize()
    trainer = trained(nnet, examples(3), max_param_change=0.004)
    moved = np.linalg.norm(nnet.components["a"].vectorize() - before)
    assert 0 < moved < 3 * 0.0041
    lines = trainer.max_change.lines()
    assert "For a, per-component max-change was enforced 100 % of the time." in lines
    assert "The global max-change was enforced 100 % of the time." in lines


def test_the_bound_on_changes_is_set_between_steps():
    nnet = network("AffineComponent")
    nnet.components["a"].set_learning_rate(100)
    log: list[str] = []
    trainer = NnetTrainer(NnetTrainerOptions(max_param_change=0.0), nnet, log=log.append)
    for batch, bound in zip(examples(3), (0.004, 0.001, 0.002), strict=True):
        before = nnet.vectorize()
        trainer.set_max_param_change(bound)
        trainer.train(batch)
        trainer.store()
        assert np.linalg.norm(nnet.vectorize() - before) == pytest.approx(bound, rel=1e-2)
        assert log[-1].endswith(f" with max-change={bound}.")
    trainer.set_max_param_change(0.0)
    trainer.train(examples(1)[0])
    assert trainer.max_change.applied_globally == 3


def test_an_infinite_change_is_not_applied():
    nnet, batches = network(), examples(2)
    batches[0].io[0].features[0, 0] = 1e38
    batches[0].io[0].features[1:4] = np.inf
    before, lines = nnet.vectorize(), []
    trainer = NnetTrainer(NnetTrainerOptions(momentum=0.5), nnet, log=lines.append)
    trainer.train(batches[0])
    trainer.store()
    np.testing.assert_array_equal(nnet.vectorize(), before)
    assert lines == ["Infinite parameter change, will not apply."]
    trainer.train(batches[1])
    trainer.store()
    assert np.isfinite(nnet.vectorize()).all() and (nnet.vectorize() != before).any()


@pytest.mark.parametrize("type", ["AffineComponent", "NaturalGradientAffineComponent"])
def test_orthonormal_constraint(type):
    nnet = network(type, "orthonormal-constraint=1.0")
    w = nnet.components["a"].linear_params
    nnet.components["a"].linear_params = (w / np.linalg.norm(w, axis=1, keepdims=True)).astype("f4")
    trained(nnet, examples(6) * 8)
    w = nnet.components["a"].linear_params
    np.testing.assert_allclose(w @ w.T, np.eye(6), atol=0.1)


OPTIONS = [
    {"momentum": 0.5},
    {"backstitch_training_scale": 0.3, "backstitch_training_interval": 2},
    {"double_precision": True},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_resuming_is_exact(options):
    batches = examples(14)
    whole = network(dropout=0.2)
    trainer = trained(whole, batches, 3, **options)
    again = network(dropout=0.2)
    trained(again, batches, 3, **options)
    np.testing.assert_array_equal(again.vectorize(), whole.vectorize())
    half = trained(network(dropout=0.2), batches[:9], 3, **options)
    state = json.loads(json.dumps(half.state()))
    resumed = NnetTrainer(NnetTrainerOptions(**options), nnet := network(dropout=0.2), seed=77)
    resumed.restore(state, half.arrays())
    resumed.store()
    np.testing.assert_array_equal(nnet.vectorize(), half.nnet.vectorize())
    for batch in batches[9:]:
        resumed.train(batch)
    resumed.store()
    np.testing.assert_array_equal(nnet.vectorize(), whole.vectorize())
    assert resumed.objectives == trainer.objectives
    sums = nnet.components["r"], whole.components["r"]
    np.testing.assert_array_equal(sums[0].value_sum, sums[1].value_sum)
    held, objectives = state["max_change"], state["objectives"]
    for wrong, told in (
        ({"minibatches": 1}, "'seed' is missing"),
        (state | {"seed": "x"}, "'seed': 'x', where int is wanted"),
        (state | {"objectives": {"output": {}}}, "'objectives': 'output': 'weight' is missing"),
        (state | {"objectives": objectives | {"a": []}}, "'a': .*where an object is wanted"),
        (state | {"max_change": held | {"applied": [1]}}, "'max_change': .* different lengths"),
        (state | {"max_change": held | {"names": ["z"] * len(held["names"])}}, "'names' are not"),
        (state | {"statistics": [1]}, "'statistics': .0.: '1', where str is wanted"),
    ):
        with pytest.raises(FormatError, match=f"^run: its state: .*{told}"):
            resumed.restore(wrong, {}, "run: its state")


def test_double_precision():
    batches, single, double = examples(3), network(), network()
    trained(single, batches)
    trainer = trained(double, batches, double_precision=True)
    assert {array.dtype.name for array in trainer.arrays().values()} == {"float64", "int64"}
    assert double.vectorize().dtype == np.float32
    assert double.components["r"].count == single.components["r"].count > 0
    np.testing.assert_allclose(double.vectorize(), single.vectorize(), atol=1e-5)
    assert (double.vectorize() != single.vectorize()).any()


def test_seeds_differ():
    batches = examples(3)
    one, other = network(dropout=0.5), network(dropout=0.5)
    trained(one, batches, 0), trained(other, batches, 1)
    assert (one.vectorize() != other.vectorize()).any()


def test_learning_goes_on_well():
    nnet = network(dropout=0.1)
    for name in "ab":
        nnet.components[name].set_learning_rate(0.02)
    trainer = trained(nnet, examples(8) * 10)
    info = trainer.objectives["output"]
    assert info.objective / info.weight > -0.9
    prob = NnetComputeProb(nnet, NnetComputeProbOptions(compute_per_dim_accuracy=True))
    for batch in examples(3):
        prob.compute(batch)
    assert prob.accuracy_of() > 0.7
    lines = []
    prob.print_total_stats(lines.append)
    assert lines[2].startswith("Overall per-dim accuracy vector for 'output' is  [ ")


def test_learning_rates_may_change():
    nnet, batches = network("AffineComponent"), examples(2)
    nnet.components["r"].self_repair_scale = 0.0
    trainer = NnetTrainer(NnetTrainerOptions(max_param_change=0), nnet, log=[].append)
    trainer.train(batches[0])
    trainer.store()
    before = nnet.vectorize()
    deriv = gradient(nnet, batches[1])
    trainer.set_learning_rate(0.1)
    trainer.train(batches[1])
    trainer.store()
    np.testing.assert_allclose(nnet.vectorize() - before, 0.1 * deriv, rtol=2e-3, atol=1e-5)


def test_examples_that_do_not_fit():
    (batch,) = examples(1)
    trainer = NnetTrainer(NnetTrainerOptions(), network(), log=[].append)
    wide = NnetExample([batch.io[0], example_io("output", np.zeros((20, 5), np.float32))])
    with pytest.raises(ShapeError, match="'output' has 5 columns, the node of the network 3"):
        trainer.train(wide)
    with pytest.raises(FormatError, match="no such input or output"):
        trainer.train(NnetExample([*batch.io, example_io("ivector", np.zeros((1, 2)))]))
    with pytest.raises(FormatError, match="the example has no output"):
        trainer.train(NnetExample(batch.io[:1]))


def test_minibatches_of_unlike_parts():
    (batch,) = examples(1)
    trainer = NnetTrainer(NnetTrainerOptions(), network(), log=[].append)
    output = batch.io[1]
    fewer = NnetIo("output", output.indexes[:15], to_dense(output.features)[:15])
    with pytest.raises(ShapeError, match="different numbers of examples .input: 4, output: 3"):
        trainer.train(NnetExample([batch.io[0], fewer]))
    later = output.indexes + np.array([3, 0, 0], np.int32)
    with pytest.raises(NotComputableError, match="output"):
        trainer.train(NnetExample([batch.io[0], NnetIo("output", later, output.features)]))
    with pytest.raises(ShapeError, match="'output'"):
        merge_examples([batch, NnetExample(batch.io[:1])])


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": -0.1},
        {"batchnorm_stats_scale": 1.5},
        {"print_interval": 0},
        {"momentum": 0.5, "backstitch_training_scale": 0.3},
    ],
)
def test_options_are_checked(options):
    with pytest.raises(AttributeTypeError):
        NnetTrainerOptions(**options)


def test_lines_of_progress():
    lines, info = [], ObjectiveInfo()
    for minibatch in (0, 1, 2, 5):
        info.update("output", 2, minibatch, 10.0, -20.0, log=lines.append)
    assert lines == [
        "Average objective function for 'output' for minibatches 0-1 is -2 over 20 frames.",
        "Average objective function for 'output using 1 minibatches in minibatch range 2-3 is -2"
        " over 10 frames.",
    ]
    info.update("output", 2, 5, 10.0, -20.0, -5.0)
    assert info.total_lines("output")[0] == (
        "Overall average objective function for 'output' is -2 + -0.1 = -2.1 over 50 frames."
    )


@pytest.mark.parametrize("affine", ["NaturalGradientAffineComponent", "AffineComponent"])
@pytest.mark.parametrize("options", [{"momentum": 0.5}, {"backstitch_training_scale": 0.3}])
@pytest.mark.parametrize("double", [False, True])
def test_training_with_every_command_told_is_the_same(affine, options, double):
    """As under Kaldi's --computation.debug: the numbers are those of other runs."""
    results, lines = [], []
    for debug in (False, True):
        nnet = network(affine, dropout=0.3)
        chosen = NnetTrainerOptions(**options, double_precision=double, print_interval=2)
        with telling(Verbose(0, lines.append, debug=debug)):
            trainer = NnetTrainer(chosen, nnet, seed=4)
            for example in examples():
                trainer.train(example)
        trainer.store()
        results.append(nnet.vectorize())
        assert bool(lines) == debug
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)
    runs = sum(line.startswith("matrix m1(") for line in lines)
    assert runs == (
        6 if "momentum" in options else 12
    )  # a minibatch with backstitch is computed twice
    for name in "ab":
        assert sum(f": {name}.Backprop(" in line for line in lines) == runs
        told = [line for line in lines if f": {name}.Backprop(" in line]
        sizes = [line.rpartition(f" {name}: ")[2].partition("->")[0] for line in told]
        assert len(set(sizes)) > 3  # the parameters change from step to step
    assert all(re.search(r"time: \S+ secs\Z", line) for line in lines if line[:6] != "matrix")
