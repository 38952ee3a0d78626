"""nnet3 training on ranks: the sums of gradients, and what stays with each rank."""

import numpy as np
import pytest

from opscope.framework.base.errors import RanksError
from opscope.framework.parallel.dry import DryWorld
from opscope.nnet3.egs.merging import merge_examples
from opscope.nnet3.egs.rows import example_io
from opscope.nnet3.files.examples import NnetExample
from opscope.nnet3.files.sparse import SparseMatrix
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.training import NnetTrainer, NnetTrainerOptions

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


def trained(make, options, batches, communicator=None, seed=0):
    """All that has changed in training, and the total objective."""
    trainer = NnetTrainer(options, make(), seed=seed, log=[].append, communicator=communicator)
    for batch in batches:
        trainer.train(merge_examples(batch))
    total = trainer.objectives["output"]
    return trainer.arrays(), (total.weight, total.objective)


def on_ranks(make, options, steps, seed=0):
    size = len(steps[0])
    return DryWorld(size).run(
        lambda c: trained(make, options, [step[c.rank] for step in steps], c, seed + c.rank)
    )


OPTIONS = {
    "plain": {},
    "momentum": {"momentum": 0.5},
    "l2_and_bounds": {"l2_regularize_factor": 0.5, "max_param_change": 0.05},
    "backstitch": {"backstitch_training_scale": 0.3, "backstitch_training_interval": 2},
}


@pytest.mark.parametrize("sizes", [(2,), (1, 3)], ids=["equal", "unequal"])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", OPTIONS)
def test_ranks_train_as_one_process(kind, size, sizes):
    options = NnetTrainerOptions(double_precision=True, **OPTIONS[kind])
    steps = minibatches(20, size, sizes)
    joined = [[one for part in step for one in part] for step in steps]
    wanted, objective = trained(network, options, joined)
    for found, total in on_ranks(network, options, steps, seed=0):
        np.testing.assert_allclose(total, objective, rtol=1e-12)
        for name, value in wanted.items():
            if name[:2] in ("a/", "b/"):  # others are statistics of a rank's own data
                gap = np.abs(found[name] - value).max()
                assert gap <= 1e-12 * max(1.0, np.abs(value).max()), name


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
