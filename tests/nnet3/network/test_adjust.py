"""Changes to whole networks: scale, rates, modes, joined components; transition models."""

from __future__ import annotations

import numpy as np
import pytest

from damage import check_damaged
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.transition_model import HmmState, TransitionModel, convert
from opscope.nnet3.graph.request import ComputationRequest, IoSpecification
from opscope.nnet3.inference.pipeline import compile_request
from opscope.nnet3.network import adjust
from opscope.nnet3.network.collapse import collapse_model
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.run.computer import NnetComputer

HEAD = "input-node name=input dim=4\n"


def network(*lines, output="b"):
    return Nnet.from_config_text(
        HEAD + "\n".join([*lines, f"output-node name=output input={output}"]), 1
    )


def layer(name, type, source, **values):
    settings = " ".join(f"{key.replace('_', '-')}={value}" for key, value in values.items())
    return (
        f"component name={name} type={type} {settings}\n"
        f"component-node name={name} component={name} input={source}"
    )


# -- scale, rates, modes ---------------------------------------------------------------------------


def test_scale():
    nnet = network(
        layer("a", "AffineComponent", "input", input_dim=4, output_dim=3),
        layer("r", "RectifiedLinearComponent", "a", dim=3),
        layer(
            "c", "ConstantFunctionComponent", "r", input_dim=3, output_dim=2, is_updatable="false"
        ),
        layer("b", "BatchNormComponent", "r", dim=3),
    )
    relu, batchnorm = nnet.components["r"], nnet.components["b"]
    relu.count, relu.value_sum = 10.0, np.array([1.0, 2.0, 3.0])
    batchnorm.count, batchnorm.stats_sum = 4.0, np.array([4.0, 8.0, 12.0])
    before, constant = nnet.vectorize(), nnet.components["c"].output.copy()
    adjust.scale(nnet, 0.5)
    np.testing.assert_array_equal(nnet.vectorize(), before * np.float32(0.5))
    assert (relu.count, batchnorm.count) == (5, 2)
    np.testing.assert_array_equal(relu.value_sum, [0.5, 1, 1.5])
    np.testing.assert_array_equal(batchnorm.stats_mean, [1, 2, 3])
    np.testing.assert_array_equal(nnet.components["c"].output, constant)


def test_scale_by_zero_clears_nan():
    nnet = network(layer("b", "AffineComponent", "input", input_dim=4, output_dim=3))
    nnet.components["b"].linear_params[0] = np.nan
    adjust.scale(nnet, 0.0)
    assert not nnet.vectorize().any()


def test_scale_keeps_whole_counts_whole():
    nnet = network(layer("b", "ClipGradientComponent", "input", dim=4))
    nnet.components["b"].count = 7
    adjust.scale(nnet, 0.5)
    assert nnet.components["b"].count == 3 and isinstance(nnet.components["b"].count, int)


COMPOSITE = (
    "component name=b type=CompositeComponent num-components=2 "
    'component1="type=RepeatedAffineComponent input-dim=4 output-dim=4 num-repeats=2" '
    "component2='type=AffineComponent input-dim=4 output-dim=3 learning-rate-factor=0.5'\n"
    "component-node name=b component=b input=input"
)


def test_composite_components():
    nnet = network(COMPOSITE)
    before = nnet.vectorize()
    adjust.scale(nnet, 2.0)
    np.testing.assert_array_equal(nnet.vectorize(), 2 * before)
    adjust.set_learning_rate(nnet, 0.5)
    first, second = nnet.components["b"].components
    assert (first.learning_rate, second.learning_rate) == (0.5, 0.25)
    assert adjust.convert_repeated_to_block(nnet) == 1
    assert nnet.components["b"].components[0].type == "BlockAffineComponent"
    Nnet.read_from(Reader(written(nnet)))


def written(nnet):
    writer = Writer(False)
    nnet.write_to(writer)
    return writer.getvalue()


def test_convert_repeated_to_block():
    nnet = network(
        layer("b", "RepeatedAffineComponent", "input", input_dim=4, output_dim=6, num_repeats=2)
    )
    old = nnet.components["b"]
    old.max_change = 0.75
    assert adjust.convert_repeated_to_block(nnet) == 1
    new = nnet.components["b"]
    assert (new.type, new.input_dim, new.output_dim) == ("BlockAffineComponent", 4, 6)
    assert new.max_change == 0.75
    np.testing.assert_array_equal(new.linear_params, np.tile(old.linear_params, (2, 1)))
    np.testing.assert_array_equal(new.bias_params, np.tile(old.bias_params, 2))
    assert b"<MaxChange> 0.75 <LearningRate> 0.001 <NumBlocks> 2 " in written(nnet)


def test_modes():
    nnet = network(
        layer("d", "DropoutComponent", "input", dim=4, dropout_proportion=0.5),
        layer("b", "BatchNormComponent", "d", dim=4),
    )
    adjust.set_batchnorm_test_mode(nnet, True)
    assert nnet.components["b"].test_mode and not nnet.components["d"].test_mode
    adjust.set_dropout_test_mode(nnet, True)
    assert nnet.components["d"].test_mode


# -- joined components -----------------------------------------------------------------------------


def affine(component, x):
    return x @ component.linear_params.T + component.bias_params


def test_affine_takes_in_affine():
    """Each block of columns of the second meets the first; offsets add up."""
    nnet = network(
        layer(
            "a",
            "NaturalGradientAffineComponent",
            "Append(Offset(input, -1), input)",
            input_dim=8,
            output_dim=9,
        ),
        layer("b", "AffineComponent", "Append(Offset(a, -2), a)", input_dim=18, output_dim=3),
    )
    first, second = nnet.components["a"], nnet.components["b"]
    assert collapse_model(nnet) == (1, 2)
    assert list(nnet.components) == ["a.b"]
    assert nnet.config_lines() == [
        "input-node name=input dim=4",
        "component-node name=b component=a.b input="
        "Append(Offset(input, -3), Offset(input, -2), Offset(input, -1), input)",
        "output-node name=output input=b objective=linear",
    ]
    x = np.random.default_rng(1).normal(size=(5, 16)).astype(np.float32)
    middle = np.hstack([affine(first, x[:, :8]), affine(first, x[:, 8:])])
    joined = nnet.components["a.b"]
    np.testing.assert_allclose(affine(joined, x), affine(second, middle), rtol=1e-4, atol=1e-4)
    assert (joined.type, joined.linear_params.dtype) == ("AffineComponent", np.float32)


def test_joined_network_computes_the_same():
    nnet = network(
        layer(
            "f",
            "FixedAffineComponent",
            "Append(Offset(input, -1), input)",
            input_dim=8,
            output_dim=8,
        ),
        layer("a", "AffineComponent", "f", input_dim=8, output_dim=9),
        layer("s", "FixedScaleComponent", "a", dim=9),
        layer("r", "RectifiedLinearComponent", "s", dim=9),
        layer("d", "DropoutComponent", "r", dim=9, dropout_proportion=0.5),
        layer("n", "BatchNormComponent", "d", dim=9),
        layer("c", "LinearComponent", "Append(Offset(n, -2), n)", input_dim=18, output_dim=6),
        layer("e", "AffineComponent", "Append(Offset(c, 1), c)", input_dim=12, output_dim=13),
        layer(
            "b",
            "AffineComponent",
            "Append(Offset(e, 3), Offset(e, -3))",
            input_dim=26,
            output_dim=3,
        ),
    )
    statistics = nnet.components["n"]
    statistics.count = 2.0
    statistics.stats_sum, statistics.stats_sumsq = np.arange(9.0), np.arange(9.0) ** 2
    adjust.set_batchnorm_test_mode(nnet, True)
    adjust.set_dropout_test_mode(nnet, True)
    joined = nnet.copy()
    assert collapse_model(joined) == (3, 6)
    assert "f.a.s" in joined.components and "e.b" in joined.components
    left, right = nnet.context()
    assert joined.context() == (left, right)
    times = np.arange(-left, 7 + right)
    rows = np.stack([0 * times, times, 0 * times], 1)
    request = ComputationRequest(
        [IoSpecification("input", rows)], [IoSpecification("output", rows[left : left + 7])]
    )
    x = np.random.default_rng(2).normal(size=(len(times), 4)).astype(np.float32)
    outputs = []
    for candidate in (nnet, joined):
        computer = NnetComputer(compile_request(candidate, request, optimize=False), candidate)
        computer.accept_input("input", x)
        computer.run()
        outputs.append(computer.get_output("output"))
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-4, atol=1e-4)


def test_scale_behind_affine():
    nnet = network(
        layer("a", "AffineComponent", "input", input_dim=4, output_dim=3, learning_rate=0.5),
        layer("b", "FixedScaleComponent", "a", dim=3),
    )
    first, scales = nnet.components["a"].copy(), nnet.components["b"].scales
    assert collapse_model(nnet) == (1, 2)
    x = np.ones((2, 4), np.float32)
    joined = nnet.components["a.b"]
    np.testing.assert_allclose(affine(joined, x), affine(first, x) * scales, rtol=1e-5)
    assert joined.learning_rate == 0.5


def test_chain_of_joined_components():
    nnet = network(
        layer("f", "FixedAffineComponent", "input", input_dim=4, output_dim=4),
        layer("a", "AffineComponent", "f", input_dim=4, output_dim=4),
        layer("b", "FixedScaleComponent", "a", dim=4, scale=2),
    )
    assert collapse_model(nnet)[1] > 0
    assert list(nnet.components) == ["f.a.b"]


@pytest.mark.parametrize(
    ("source", "dims"),
    [
        ("a", (2, 2)),  # the first reduces the dimension
        ("Sum(a, Offset(a, 1))", (6, 6)),
        ("IfDefined(a)", (6, 6)),
        ("Append(a, input)", (6, 10)),
        ("Scale(2.0, a)", (6, 6)),
    ],
)
def test_what_is_not_joined(source, dims):
    nnet = network(
        layer("a", "AffineComponent", "input", input_dim=4, output_dim=dims[0]),
        layer("b", "AffineComponent", source, input_dim=dims[1], output_dim=3),
    )
    before = written(nnet)
    assert collapse_model(nnet) == (0, 0)
    assert written(nnet) == before


def test_what_others_read_stays():
    nnet = network(
        layer("a", "AffineComponent", "input", input_dim=4, output_dim=4),
        layer("b", "AffineComponent", "a", input_dim=4, output_dim=4),
        layer("r", "RectifiedLinearComponent", "a", dim=4),
        output="Sum(b, r)",
    )
    assert collapse_model(nnet) == (1, 1)
    assert list(nnet.components) == ["a", "r", "a.b"]


# -- transition models -----------------------------------------------------------------------------


def small_model(opening="<Triples>", self_loop=0):
    states = [HmmState(0, self_loop, [(0, 0.5), (1, 0.5)]), HmmState()]
    rows = [[1, 0, 0], [3, 0, 1]] if opening == "<Triples>" else [[1, 0, 0, 1], [3, 0, 2, 3]]
    return TransitionModel(
        phones=[1, 3],
        entry_of=[-1, 0, -1, 0],
        entries=[states],
        opening=opening,
        tuples=np.array(rows, np.int32),
        log_probs=np.array([0, -0.5, -0.25], np.float32),
    )


def data(model, binary):
    writer = Writer(binary, header=False)
    model.write_to(writer)
    return writer.getvalue()


@pytest.mark.parametrize("model", [small_model(), small_model("<Tuples>", 1)], ids=["hmm", "chain"])
def test_transition_model_in_both_forms(model):
    binary, text = data(model, True), data(model, False)
    assert convert(binary, False, from_binary=True) == text
    assert convert(text, True, from_binary=False) == binary
    assert convert(binary, True, from_binary=True) == binary
    assert model.is_hmm == (b"<PdfClass> 0 <Transition> 0 0.5" in text)
    assert model.is_hmm != (b"<ForwardPdfClass> 0 <SelfLoopPdfClass> 1 " in text)


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_damaged_transition_models(binary):
    def read(damaged):
        return TransitionModel.read_from(Reader(damaged, binary=binary))

    check_damaged(data(small_model("<Tuples>", 1), binary), read, whole=False)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        (b"<State> 1", b"<State> 2", "state 1 was expected"),
        (b"1 3 \n</For", b"1 1 \n</For", "1 is no phone, or is in two entries"),
        (b"1 3 \n</For", b"1 2000000000 \n</For", "2000000000 is no phone"),
        (b"<Triples> 2", b"<Triples> -2", "-2 entries cannot follow here"),
        (b"</Triples>", b"</Tuples>", "</Triples> was expected"),
    ],
)
def test_wrong_transition_models(old, new, part):
    text = data(small_model(), False)
    assert old in text
    with pytest.raises(FormatError, match=part):
        convert(text.replace(old, new), True, from_binary=False)
