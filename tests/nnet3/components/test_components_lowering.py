"""Components as operators: in place, adding, accumulating, composite; what refuses to compute."""

import numpy as np
import pytest

from component_lines import from_config
from component_runs import arrays, backprop, backprop_reads, propagate
from opscope.framework.base.errors import RunError, ShapeError, UnknownOperatorError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, OUTPUT, STATE, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.registry import lookup
from opscope.framework.runtime.plain_net import PlainNet
from opscope.kaldi.files.kaldi_io import Reader
from opscope.nnet3.components import COMPONENTS, Component, ComponentOps
from opscope.nnet3.components.base.precompute import precompute_indexes
from opscope.nnet3.index.indexes import Columns

AFFINE = (
    "<AffineComponent> <LearningRate> 0.1 <LinearParams> [ 1 2 3\n 4 5 6 ] <BiasParams> [ 1 -1 ]"
    " </AffineComponent>"
)
SIGMOID = (
    "<SigmoidComponent> <Dim> 2 <ValueAvg> [ ] <DerivAvg> [ ] <Count> 0 <NumDimsSelfRepaired> 0"
    " <NumDimsProcessed> 0 </SigmoidComponent>"
)
RELU = SIGMOID.replace("Sigmoid", "RectifiedLinear")
OFFSET = (
    "<PerElementOffsetComponent> <LearningRate> 0.1 <Offsets> [ 1 2 ] <Dim> 2"
    " <UseNaturalGradient> F </PerElementOffsetComponent>"
)
COMPOSITE = (
    "<CompositeComponent> <LearningRate> 0.1 <MaxRowsProcess> 0 <NumComponents> 3"
    f" {AFFINE} {SIGMOID} {OFFSET} </CompositeComponent>"
)


def component(text):
    return Component.read_new(Reader(text.encode() + b"\n", binary=False))


def run(ops, feeds, *wanted):
    """Values of `wanted` after running OpDescs; variables that are fed may be written."""
    net = OpList(ops=ops)
    for name, array in feeds.items():
        kind = STATE if name in wanted else INPUT
        net.vars.append(make_var(name, np.shape(array), "float32", kind))
    for name in wanted:
        if name not in feeds:
            net.vars.append(make_var(name, None, "float32", OUTPUT))
    scope = Scope()
    scope.feed({name: np.asarray(array, np.float32) for name, array in feeds.items()})
    PlainNet(net).run(scope)
    values = [scope.numpy(name) for name in wanted]
    return values[0] if len(values) == 1 else values


X = np.array([[0.5, -1.0, 0.25], [2.0, 0.0, -3.0]], np.float32)
W = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
B = np.array([1, -1], np.float32)


def test_every_component_can_be_computed():
    for component_class in COMPONENTS.values():
        assert component_class.lower is not Component.lower


def test_operators_of_a_recipe_are_found_by_name():
    assert lookup("nnet3.lstm").gradient is not None


def test_affine_is_made_of_shared_operators():
    ops = propagate(ComponentOps(component(AFFINE), "p"), "m1", "m2")
    assert [op.type for op in ops] == ["matmul", "add"]
    assert list(ops[0].inputs.values()) == [("m1",), ("p/linear_params",)]
    assert list(ops[1].outputs.values()) == [("m2",)]


def test_affine():
    ops = ComponentOps(component(AFFINE), "p")
    feeds = arrays(ops) | {"x": X}
    np.testing.assert_allclose(run(propagate(ops, "x", "y"), feeds, "y"), X @ W.T + B)


def test_add():
    ops = ComponentOps(component(AFFINE), "p")
    feeds = arrays(ops) | {"x": X, "y": np.full((2, 2), 10)}
    got = run(propagate(ops, "x", "y", add=True), feeds, "y")
    np.testing.assert_allclose(got, X @ W.T + B + 10)


def test_backprop():
    ops = ComponentOps(component(AFFINE), "p")
    grad = np.array([[1, 2], [3, -1]], np.float32)
    feeds = arrays(ops) | {"x": X, "g": grad}
    made = backprop(ops, "x", "y", "g", "dx", trained=True)
    dx, dw, db = run(made, feeds, "dx", "p/linear_params@GRAD", "p/bias_params@GRAD")
    np.testing.assert_allclose(dx, grad @ W)
    np.testing.assert_allclose(dw, grad.T @ X)
    np.testing.assert_allclose(db, grad.sum(axis=0))


def test_backprop_adds_and_accumulates():
    ops = ComponentOps(component(AFFINE), "p")
    grad = np.array([[1, 2], [3, -1]], np.float32)
    feeds = arrays(ops) | {"x": X, "g": grad, "dx": np.ones((2, 3))}
    feeds |= {"p/linear_params@GRAD": np.ones((2, 3)), "p/bias_params@GRAD": np.ones(2)}
    options = {"trained": True, "add": True, "accumulate": True}
    made = backprop(ops, "x", "y", "g", "dx", **options)
    dx, dw, db = run(made, feeds, "dx", "p/linear_params@GRAD", "p/bias_params@GRAD")
    np.testing.assert_allclose(dx, grad @ W + 1)
    np.testing.assert_allclose(dw, grad.T @ X + 1)
    np.testing.assert_allclose(db, grad.sum(axis=0) + 1)


def test_only_what_is_asked_for_is_computed():
    ops = ComponentOps(component(AFFINE), "p")
    made = backprop(ops, "x", "y", "g", None, trained=True)
    assert "dx" not in {name for op in made for name in op.output_names()}
    made = backprop(ops, "x", "y", "g", "dx")
    assert [op.type for op in made] == ["matmul_grad"]
    assert list(made[0].outputs) == ["x_grad"]


@pytest.mark.parametrize("text", [SIGMOID, RELU, OFFSET])
def test_in_place(text):
    ops = ComponentOps(component(text), "p")
    feeds = arrays(ops)
    apart = run(propagate(ops, "x", "y"), feeds | {"x": X[:, :2]}, "y")
    np.testing.assert_array_equal(
        run(propagate(ops, "x", "x"), feeds | {"x": X[:, :2]}, "x"), apart
    )
    feeds |= {"y": apart, "x": np.full((2, 2), np.nan), "g": X[:, 1:]}
    wanted = run(backprop(ops, "x", "y", "g", "dx"), feeds, "dx")
    np.testing.assert_array_equal(run(backprop(ops, "x", "y", "g", "g"), feeds, "g"), wanted)


def test_in_place_where_no_operator_allows_it():
    """The result goes the long way round."""
    square = AFFINE.replace("[ 1 2 3\n 4 5 6 ]", "[ 1 2\n 3 4 ]")
    ops = ComponentOps(component(square), "p")
    feeds = arrays(ops) | {"x": X[:, :2]}
    wanted = run(propagate(ops, "x", "y"), feeds, "y")
    np.testing.assert_array_equal(run(propagate(ops, "x", "x"), feeds, "x"), wanted)
    feeds = arrays(ops) | {"x": X[:, :2], "g": wanted}
    weights = "p/linear_params@GRAD"
    apart = run(backprop(ops, "x", "y", "g", "dx", trained=True), feeds, "dx", weights)
    over = run(backprop(ops, "x", "y", "g", "g", trained=True), feeds, "g", weights)
    np.testing.assert_array_equal(over[0], apart[0])
    np.testing.assert_array_equal(over[1], apart[1])


def test_composite():
    ops = ComponentOps(component(COMPOSITE), "p")
    assert list(ops.recipe().parameters) == ["0.linear_params", "0.bias_params", "2.offsets"]
    feeds = arrays(ops) | {"x": X, "g": np.ones((2, 2))}
    forward = propagate(ops, "x", "y")
    value = 1 / (1 + np.exp(-(X @ W.T + B)))
    np.testing.assert_allclose(run(forward, feeds, "y"), value + [1, 2], rtol=1e-6)
    made = forward + backprop(ops, "x", "y", "g", "dx", trained=True)
    dx, offsets = run(made, feeds, "dx", "p/2.offsets@GRAD")
    np.testing.assert_allclose(dx, (value * (1 - value)) @ W, rtol=1e-5)
    np.testing.assert_allclose(offsets, [2, 2])


def test_what_backprop_reads():
    assert backprop_reads(ComponentOps(component(SIGMOID), "p")) == (False, True)
    assert backprop_reads(ComponentOps(component(AFFINE), "p")) == (True, False)
    assert backprop_reads(ComponentOps(component(OFFSET), "p")) == (False, False)


def test_recipes_are_kept():
    ops = ComponentOps(component(AFFINE), "p")
    assert ops.recipe() is ops.recipe()


def test_like_components_share_operators_but_no_variables():
    first = ComponentOps(component(AFFINE), "p")
    second = ComponentOps(component(AFFINE), "q")
    for name, ops in {"p": first, "q": second, "p ": first}.items():
        made = propagate(ops, "x" + name, "y" + name) + backprop(ops, "x", "y", "g", "dx")
        names = [op.input_names() for op in made]
        p = f"{name.strip()}/linear_params"
        bias = f"{name.strip()}/bias_params"
        assert names == [["x" + name, p], ["c1/0", bias], ["x", p, "g"]]
        assert made[1].output_names() == ["y" + name]
    other = ComponentOps(component(RELU), "r")
    assert first.recipe().key() == second.recipe().key() != other.recipe().key()


def test_indexes_that_are_an_attribute_need_no_recipe_of_their_own():
    truncation = from_config(
        "BackpropTruncationComponent", "dim=3 scale=0.5 clipping-threshold=1 zeroing-threshold=2"
    )
    ops = ComponentOps(truncation, "p")
    rows = [np.array(mask, bool) for mask in ([1, 0], [0, 0, 1])]
    for mask in (*rows, rows[0]):
        made = propagate(ops, "x", "y", indexes=mask)
        made += backprop(ops, "x", "y", "g", "dx", indexes=mask)
        assert [op.type for op in made] == [
            *("scale", "nnet3.truncate_gradient"),
            *("nnet3.truncate_gradient_grad", "scale"),
        ]
        for op in made[1:3]:
            np.testing.assert_array_equal(op.attrs["boundary"], mask)
    assert ops.recipe(rows[0]) is ops.recipe(rows[1])


def test_unknown_type():
    class Unfinished(Component):
        type = "NoComponent"

    with pytest.raises(UnknownOperatorError, match="'NoComponent' cannot be computed"):
        ComponentOps(Unfinished(), "p").recipe()


def test_batch_norm_without_statistics():
    text = (
        "<BatchNormComponent> <Dim> 2 <BlockDim> 2 <Epsilon> 0.001 <TargetRms> 1 <TestMode> T"
        " <Count> 0 <StatsMean> [ 0 0 ] <StatsVar> [ 0 0 ] </BatchNormComponent>"
    )
    with pytest.raises(RunError, match="no statistics"):
        ComponentOps(component(text), "p").recipe()


def indexes(*times, n=0, x=0):
    return np.array([(n, t, x) for t in times], np.int32).reshape(-1, 3)


TDNN = from_config("TdnnComponent", "input-dim=1 output-dim=1 time-offsets=-1,2")


def reordered(component, *sides):
    return [side.indexes for side in component.reorder(*map(Columns.of, sides))]


def precomputed(component, *sides):
    return precompute_indexes([(component, *map(Columns.of, sides))])[0]


def test_tdnn_rows():
    inputs, outputs = indexes(*range(-1, 9)), indexes(0, 3, 6)
    inputs, outputs = reordered(TDNN, inputs, outputs)
    assert len(inputs) == 12, "whole blocks of three"
    assert inputs[10:, 1].tolist() == [-(1 << 31)] * 2, "padding"
    where = precomputed(TDNN, inputs, outputs)
    assert (where.first, where.stride, where.rows) == ((0, 3), 3, 3)


def test_tdnn_rows_of_two_sequences():
    inputs = np.concatenate([indexes(*range(6), n=n) for n in (1, 0)])
    outputs = np.concatenate([indexes(1, 2, 3, n=n) for n in (0, 1)])
    inputs, outputs = reordered(TDNN, inputs, outputs)
    assert outputs.tolist() == [[n, t, 0] for t in (1, 2, 3) for n in (0, 1)]
    where = precomputed(TDNN, inputs, outputs)
    assert (where.first, where.stride) == ((0, 6), 1)


def test_missing_inputs_are_refused():
    with pytest.raises(ShapeError, match="time offset 2"):
        precomputed(TDNN, indexes(0, 1, 2), indexes(1, 2))
    extraction = from_config("StatisticsExtractionComponent", "input-dim=2 output-period=4")
    with pytest.raises(ShapeError, match=r"\(0, 9, 0\) have no input"):
        precomputed(extraction, indexes(0, 1, 2), indexes(1, 9))
    distribute = from_config("DistributeComponent", "input-dim=4 output-dim=2")
    with pytest.raises(ShapeError, match=r"lacks its input .* \(0, 1, 2\)"):
        precomputed(distribute, indexes(1), indexes(1, x=5))
    with pytest.raises(ShapeError, match="without any time"):
        reordered(TDNN, indexes(), indexes())


def test_statistics_rows():
    extraction = from_config("StatisticsExtractionComponent", "input-dim=2 output-period=4")
    inputs = np.concatenate([indexes(-2, -1, 0, 3, n=n) for n in (1, 0)])
    outputs = np.concatenate([indexes(1, -4, n=n) for n in (1, 0)])
    inputs, outputs = reordered(extraction, inputs, outputs)
    assert outputs.tolist() == [[0, -4, 0], [0, 1, 0], [1, -4, 0], [1, 1, 0]]
    where = precomputed(extraction, inputs, outputs)
    assert (where.begin.tolist(), where.end.tolist()) == ([0, 2, 4, 6], [2, 4, 6, 8])


def test_distribute_rows():
    distribute = from_config("DistributeComponent", "input-dim=4 output-dim=2")
    inputs = np.array([(0, 1, 0), (0, 1, -1)], np.int32)
    outputs = np.array([(0, 1, -1), (0, 1, -2), (0, 1, 1), (0, 1, 0)], np.int32)
    assert precomputed(distribute, inputs, outputs).tolist() == [3, 2, 1, 0]


def test_truncation_boundaries():
    truncation = from_config(
        "BackpropTruncationComponent", "dim=2 zeroing-interval=4 recurrence-interval=1"
    )
    rows = np.concatenate((indexes(0, 1, 4), indexes(0, 1, 5, n=1)))
    got = precomputed(truncation, rows, rows)
    assert got.tolist() == [True, False, True, False, True, True]
    steps = [(truncation, Columns.of(part), Columns.of(part)) for part in (rows[:2], rows[2:])]
    affine = (component(AFFINE), *steps[0][1:])
    first, none, second = precompute_indexes([steps[0], affine, steps[1]])
    assert none is None and [*first, *second] == got.tolist()


def test_masks_by_sequence_and_period():
    dropout = from_config("GeneralDropoutComponent", "dim=2 time-period=3")
    rows = np.concatenate((indexes(0, 2, 3, n=0), indexes(-1, 1, n=1)))
    where = precomputed(dropout, rows, rows)
    assert where.count == 4 and where.rows.tolist() == [0, 0, 1, 2, 3]
    dropout.time_period = 0
    assert precomputed(dropout, rows, rows).count == 2


def test_time_masks_of_spec_augment():
    """Rows of each sequence are masked in the order of their times."""
    mask = from_config("SpecAugmentTimeMaskComponent", "dim=3 time-mask-max-frames=2")
    rows = np.concatenate((indexes(2, 0, 1, n=1), indexes(5, n=0)))
    where = precomputed(mask, rows, rows)
    assert where.order.tolist() == [3, 1, 2, 0] and where.lengths == (1, 3)
    ops = ComponentOps(mask, "p")
    made = propagate(ops, "x", "y", indexes=where)
    np.testing.assert_array_equal(made[0].attrs["order"], where.order)
    out = run(made, {"x": np.ones((4, 3))}, "y")
    assert set(out[:, 0]) <= {0, 1} and (out == out[:, :1]).all()
