"""nnet3 training on ranks: the sums of gradients, and what stays with each rank."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from chain_graphs import random_hmm, random_supervision
from mpi_runs import run_ranks
from opscope.framework.base.errors import RanksError
from opscope.framework.parallel.dry import DryWorld, EchoCommunicator
from opscope.framework.parallel.link import Link
from opscope.kaldi.files.sparse import SparseMatrix
from opscope.nnet3.chain.denominator import DenominatorGraph
from opscope.nnet3.chain.examples import NnetChainExample, NnetChainSupervision
from opscope.nnet3.chain.objective import ChainOptions
from opscope.nnet3.egs.chain_changes import merge_chain_examples
from opscope.nnet3.egs.merging import merge_examples
from opscope.nnet3.egs.rows import example_io
from opscope.nnet3.files.examples import NnetExample, NnetIo
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.training import NnetTrainer, NnetTrainerOptions
from opscope.nnet3.training.chain_objectives import ChainObjectives

CONFIG = """input-node name=input dim=4
component name=a type={affine} input-dim=12 output-dim=6 l2-regularize=0.01 {extra}
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component name=r type=SigmoidComponent dim=6 self-repair-scale={repair}
component-node name=r component=r input=a
component name=d type=DropoutComponent dim=6 dropout-proportion={dropout}
component-node name=d component=d input=r
component name=b type={affine} input-dim=6 output-dim=3
component-node name=b component=b input=d
component name=s type=LogSoftmaxComponent dim=3
component-node name=s component=s input=b
output-node name=output input=s objective=linear
"""


def network(affine="AffineComponent", repair=0.0, dropout=0.0, extra="", seed=1):
    return Nnet.from_config_text(CONFIG.format(**locals()), seed)


def example(rng, size, frames=5):
    """`size` examples merged into one."""
    batch = []
    for _ in range(size):
        features = rng.normal(size=(frames + 2, 4)).astype(np.float32)
        targets = SparseMatrix.from_dense(np.eye(3)[rng.integers(0, 3, frames)])
        batch.append(
            NnetExample([example_io("input", features, -1), example_io("output", targets)])
        )
    return batch


def minibatches(steps, size, sizes):
    rng = np.random.default_rng(0)
    return [[example(rng, sizes[rank % len(sizes)]) for rank in range(size)] for _ in range(steps)]


def trained(make, options, batches, communicator=None, seed=0, **settings):
    """All that has changed in training, and the total objective."""
    settings |= {"seed": seed, "communicator": communicator, "log": [].append}
    trainer = NnetTrainer(options, make(), **settings)
    for batch in batches:
        trainer.train(merge_examples(batch))
    total = trainer.objectives["output"]
    return trainer.arrays(), (total.weight, total.objective)


def on_ranks(make, options, steps, seed=0, **settings):
    size = len(steps[0])
    return DryWorld(size).run(
        lambda c: trained(
            make, options, [step[c.rank] for step in steps], c, seed + c.rank, **settings
        )
    )


OPTIONS = {
    "plain": {},
    "momentum": {"momentum": 0.5},
    "l2_and_bounds": {"l2_regularize_factor": 0.5, "max_param_change": 0.05},
    "backstitch": {"backstitch_training_scale": 0.3, "backstitch_training_interval": 2},
}


PRECISIONS = [(True, 200, 1e-12), (False, 20, 1e-6)]


def check_equal(ranks, wanted, tolerance):
    """Ranks bit for bit among themselves, and against one process."""
    values, objective = wanted
    for found, total in ranks:
        np.testing.assert_allclose(total, objective, rtol=tolerance)
        for name, value in values.items():
            if name.endswith("_params"):  # others are statistics of a rank's own data
                assert found[name].tobytes() == ranks[0][0][name].tobytes(), name
                gap = np.abs(found[name] - value).max()
                assert gap <= tolerance * max(1.0, np.abs(value).max()), name


@pytest.mark.parametrize(("double", "count", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("sizes", [(2,), (1, 3)], ids=["equal", "unequal"])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", OPTIONS)
def test_ranks_train_as_one_process(kind, size, sizes, double, count, tolerance):
    options = NnetTrainerOptions(double_precision=double, **OPTIONS[kind])
    steps = minibatches(10, size, sizes) * (count // 10)
    joined = [[one for part in step for one in part] for step in steps]
    wanted = trained(network, options, joined)
    check_equal(on_ranks(network, options, steps), wanted, tolerance)


def natural():
    """Natural gradient, self-repair, dropout and an orthonormal constraint."""
    return network(
        "NaturalGradientAffineComponent",
        repair=1.0,
        dropout=0.2,
        extra="orthonormal-constraint=1.0",
    )


def test_parameters_stay_equal_where_much_is_a_matter_of_a_rank():
    options = NnetTrainerOptions(momentum=0.5, max_param_change=1.0)
    steps = minibatches(12, 3, (1, 2, 3))
    ranks = [arrays for arrays, _ in on_ranks(natural, options, steps, seed=5)]
    moved = natural()
    for name in ("a/linear_params", "a/bias_params", "b/linear_params", "b/bias_params"):
        assert len({one[name].tobytes() for one in ranks}) == 1, name
        component, _, field = name.partition("/")
        assert (ranks[0][name] != getattr(moved.components[component], field)).any()
    own = [name for name in ranks[0] if len({one[name].tobytes() for one in ranks}) > 1]
    assert {"r/value_sum", "r/deriv_sum"} <= set(own)
    assert any(name.startswith("a/") for name in own), "the natural gradient is a rank's own"


@pytest.mark.parametrize(("double", "count", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("sizes", [(2,), (1, 3)], ids=["equal", "unequal"])
def test_natural_gradient_of_all_ranks(size, sizes, double, count, tolerance):
    """Ranks whose estimates are those of all samples train as one process."""
    options = NnetTrainerOptions(double_precision=double, momentum=0.5, max_param_change=1.0)
    steps = minibatches(10, size, sizes) * (count // 10)
    joined = [[one for part in step for one in part] for step in steps]

    def make():
        return network("NaturalGradientAffineComponent")

    wanted = trained(make, options, joined)
    found = on_ranks(make, options, steps, sync_natural_gradient=True)
    check_equal(found, wanted, tolerance)
    for name in wanted[0]:
        if name.startswith(("a/", "b/")):  # the estimates, too
            assert len({one[name].tobytes() for one, _ in found}) == 1, name
    with pytest.raises(AssertionError):
        check_equal(on_ranks(make, options, steps), wanted, 1e-4)


SUMMED = """input-node name=input dim=4
component name=c type=TimeHeightConvolutionComponent num-filters-in=1 num-filters-out=4 \
    height-in=4 height-out=4 height-offsets=-1,0,1 time-offsets=-1,0,1
component-node name=c component=c input=input
component name=r type=NaturalGradientRepeatedAffineComponent input-dim=16 output-dim=8 \
    num-repeats=2
component-node name=r component=r input=c
component name=o type=ScaleAndOffsetComponent dim=8 block-dim=4
component-node name=o component=o input=r
component name=b type=AffineComponent input-dim=8 output-dim=3
component-node name=b component=b input=o
component name=s type=LogSoftmaxComponent dim=3
component-node name=s component=s input=b
output-node name=output input=s objective=linear
""".replace("\\\n", "")


def test_natural_gradient_of_what_is_a_sum_already():
    """Convolutions and repeated blocks precondition their gradients, not samples.

    These have fewer rows than the estimates' rank, which makes much of rounding: the same samples
    in another order, in one process, are 7e-11 apart here.
    """
    options = NnetTrainerOptions(double_precision=True)
    steps = minibatches(20, 2, (1, 3))
    joined = [[one for part in step for one in part] for step in steps]

    def make():
        return Nnet.from_config_text(SUMMED, 1)

    wanted = trained(make, options, joined)
    check_equal(on_ranks(make, options, steps, sync_natural_gradient=True), wanted, 1e-9)
    with pytest.raises(AssertionError):
        check_equal(on_ranks(make, options, steps), wanted, 1e-4)


def test_mpi_gives_the_bits_of_dry_ranks(tmp_path):
    program = """
        import numpy as np
        from opscope.framework.parallel.mpi import MpiCommunicator
        from parallel.test_nnet3_ranks import common_steps

        with MpiCommunicator() as ranks:
            np.savez(f"{ranks.rank}.npz", **common_steps(ranks))
    """
    done = run_ranks(2, program, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for rank, dry in enumerate(DryWorld(2).run(common_steps)):
        with np.load(tmp_path / f"{rank}.npz") as found:
            assert set(found.files) == set(dry)
            for name, value in dry.items():
                assert found[name].tobytes() == value.tobytes(), name


def common_steps(ranks):
    """What a rank has after a few steps with natural gradient of all ranks."""
    options = NnetTrainerOptions(momentum=0.5)
    own = [step[ranks.rank] for step in minibatches(6, ranks.size, (1, 3))]
    make = partial(network, "NaturalGradientAffineComponent")
    arrays, _ = trained(make, options, own, ranks, sync_natural_gradient=True)
    return {name.replace("/", "-"): value for name, value in arrays.items()}


def test_other_parameters_or_options_are_named():
    def work(c):
        options = NnetTrainerOptions()
        trained(lambda: network(seed=1 + c.rank), options, [], c)

    with pytest.raises(RanksError, match="the setting parameters of rank 1 is"):
        DryWorld(2).run(work)
    with pytest.raises(RanksError, match="the setting options of rank 1 is"):
        DryWorld(2).run(
            lambda c: NnetTrainer(
                NnetTrainerOptions(momentum=0.1 * c.rank), network(), communicator=c
            )
        )


# -- many ranks in one process ---------------------------------------------------------------------


def step_logs(communicator, steps=3):
    """The messages of each step."""
    options = NnetTrainerOptions(double_precision=True, momentum=0.5)
    trainer = NnetTrainer(options, natural(), log=[].append, communicator=communicator)
    logs = []
    for batch in minibatches(steps, 1, (2,)):
        communicator.messages.clear()
        trainer.train(merge_examples(batch[0]))
        logs.append([(one.kind, one.nbytes) for one in communicator.messages])
    return logs


def test_one_rank_stands_for_1024():
    link = Link(latency=2e-6, bandwidth=12.5e9)
    echo = EchoCommunicator(1024, link)
    first, *others = step_logs(echo)
    assert others == [first] * 2
    assert ("all_reduce", 8 * (6 * 12 + 6 + 3 * 6 + 3)) in first  # the gradients, in float64
    assert echo.seconds >= 3 * sum(link.seconds(*message, 1024) for message in first)


def test_it_sends_what_ranks_that_all_run_send():
    wanted = step_logs(EchoCommunicator(8))
    assert DryWorld(8).run(step_logs) == [wanted] * 8


# -- LF-MMI ----------------------------------------------------------------------------------------

CHAIN = """input-node name=input dim=2
component name=a type=AffineComponent input-dim=6 output-dim=5
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component name=r type=RectifiedLinearComponent dim=5
component-node name=r component=r input=a
component name=b type=AffineComponent input-dim=5 output-dim=3
component-node name=b component=b input=r
output-node name=output input=b
component name=x type=AffineComponent input-dim=5 output-dim=3
component-node name=x component=x input=r
component name=s type=LogSoftmaxComponent dim=3
component-node name=s component=s input=x
output-node name=output-xent input=s
"""


_UNIT = 2.0**-10
"""Sums of few costs that are multiples of it are exact in float32. Costs of a merged lattice are
such sums of those of its parts, and float32, as in Kaldi's files."""


def chain_example(rng, frames=4):
    times = np.zeros((frames + 2, 3), np.int32)
    times[:, 1] = np.arange(-1, frames + 1)
    features = rng.normal(size=(frames + 2, 2)).astype(np.float32)
    supervision = random_supervision(rng, frames)
    fst = supervision.fst
    exact = fst.with_columns(weight=np.round(fst.weight / _UNIT) * _UNIT)
    exact.final = np.round(fst.final / _UNIT) * _UNIT
    supervision = replace(supervision, fst=exact)
    weights = np.ones(frames, np.float32)
    return NnetChainExample(
        [NnetIo("input", times, features)],
        [NnetChainSupervision("output", times[1:-1], supervision, weights)],
    )


@pytest.mark.parametrize(("double", "count", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("size", [2, 4])
def test_lattice_free_mmi_on_ranks(size, double, count, tolerance):
    rng = np.random.default_rng(2)
    graph = DenominatorGraph.of_fst(random_hmm(rng), 3)
    drawn = [[[chain_example(rng) for _ in range(1 + r % 2)] for r in range(size)] for _ in "12345"]
    steps = drawn * (count // len(drawn))

    def run(batches, communicator=None):
        settings = ChainOptions(
            out_of_range_regularize=0.0, l2_regularize=1e-4, xent_regularize=0.1
        )
        trainer = NnetTrainer(
            NnetTrainerOptions(double_precision=double, momentum=0.5),
            Nnet.from_config_text(CHAIN, 1),
            log=[].append,
            objective=ChainObjectives(graph, settings),
            communicator=communicator,
        )
        for batch in batches:
            trainer.train(merge_chain_examples(batch))
        return trainer.arrays(), [info.objective for info in trainer.objectives.values()]

    wanted = run([[one for part in step for one in part] for step in steps])
    ranks = DryWorld(size).run(lambda c: run([step[c.rank] for step in steps], c))
    check_equal(ranks, wanted, tolerance)
