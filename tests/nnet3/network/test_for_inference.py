"""Computers for inference: what they take, test mode, joined components; models do not change."""

import numpy as np
import pytest

from opscope import nnet3
from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.kaldi.files.kaldi_io import Writer
from opscope.nnet3.network.for_inference import for_inference, read_model

NET = """\
input-node name=input dim=3
component name=f type=FixedAffineComponent input-dim=6 output-dim=6
component name=a type=AffineComponent input-dim=6 output-dim=4
component name=n type=BatchNormComponent dim=4
component name=d type=DropoutComponent dim=4 dropout-proportion=0.5
component name=g type=GeneralDropoutComponent dim=4 dropout-proportion=0.5
component name=s type=SpecAugmentTimeMaskComponent dim=4 zeroed-proportion=0.5
component-node name=f component=f input=Append(Offset(input, -1), input)
component-node name=a component=a input=f
component-node name=n component=n input=a
component-node name=d component=d input=n
component-node name=g component=g input=d
component-node name=s component=s input=g
output-node name=output input=s
"""
MODES = ("n", "d", "g", "s")
PRIORS = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
X = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)


@pytest.fixture
def nnet():
    made = nnet3.Nnet.from_config_text(NET, 1)
    norm = made.components["n"]
    norm.count = 2.0
    norm.stats_sum, norm.stats_sumsq = np.array([1.0, 2, 3, 4]), np.array([9.0, 9, 9, 16])
    return made


def acoustic_model(nnet, binary=False):
    model = nnet3.AmNnetSimple(nnet, b"<TransitionModel> x </TransitionModel> \n", binary)
    model.set_context()
    model.set_priors(PRIORS)
    return model


def wanted(nnet):
    """The output in test mode for X."""
    c = nnet.components
    x = np.hstack([np.vstack([X[:1], X[:-1]]), X])
    for affine in c["f"], c["a"]:
        x = x @ affine.linear_params.T + affine.bias_params
    mean = c["n"].stats_sum / 2
    normal = (x - mean) / np.sqrt(c["n"].stats_sumsq / 2 - mean**2 + c["n"].epsilon)
    return 0.5 * normal  # d would drop half of it; g and s scale in training


def written(nnet):
    writer = Writer(True)
    nnet.write_to(writer)
    return writer.getvalue()


def by_request(model, **options):
    """The output that a request without derivatives gives."""
    desc = nnet3.compile_request(model, nnet3.simple_request(model, len(X)), **options)
    return _computed(nnet3.NnetComputer(desc, model))


def by_segments(model):
    request = nnet3.simple_request(model, len(X))
    return _computed(nnet3.SegmentComputer(nnet3.compile_segments(model, [request]), model))


def _computed(computer):
    computer.accept_input("input", np.vstack([X[:1], X]))
    computer.run()
    return computer.get_output("output")


WAYS = {
    "chunks": lambda model: nnet3.ChunkComputer(model).compute(X),
    "looped": lambda model: nnet3.LoopedComputer(model).compute(X),
    "not joined": lambda model: nnet3.ChunkComputer(model, collapse=False).compute(X),
    "request": by_request,
    "segments": by_segments,
}


@pytest.mark.parametrize("given", ["net", "am", "net.raw", "net.txt", "net.mdl", "text.mdl"])
@pytest.mark.parametrize("way", WAYS)
def test_test_mode_is_what_computers_do(nnet, way, given, tmp_path):
    expected, before = wanted(nnet), written(nnet)
    nnet.write(tmp_path / "net.raw")
    nnet.write(tmp_path / "net.txt", binary=False)
    acoustic_model(nnet).write(tmp_path / "text.mdl")
    binary = acoustic_model(nnet)
    binary.transition_model, binary.binary = b"<TransitionModel> x </TransitionModel> ", True
    binary.write(tmp_path / "net.mdl")
    model = {"net": nnet, "am": acoustic_model(nnet)}.get(given, tmp_path / given)
    got = WAYS[way](model)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    assert written(nnet) == before  # test modes included


@pytest.mark.parametrize("way", WAYS)
def test_a_model_prepared_before_gives_the_same(nnet, way):
    expected = wanted(nnet)
    nnet3.prepare_for_test(nnet)
    np.testing.assert_allclose(WAYS[way](nnet), expected, rtol=1e-4, atol=1e-4)


def test_training_mode_on_request(nnet):
    """Of the batch, all rows of the request: each column has mean 0, where nothing is dropped."""
    for name in "dgs":
        nnet.components[name].test_mode = True
    computers = [
        nnet3.ChunkComputer(nnet, test_mode=False).compute(X),
        nnet3.LoopedComputer(nnet, nnet3.LoopedOptions(len(X)), test_mode=False).compute(X),
        by_request(nnet, test_mode=False),
    ]
    assert not nnet.components["n"].test_mode
    np.testing.assert_allclose(computers[2].mean(0), 0, atol=1e-5)
    for got in computers:
        assert np.abs(got - wanted(nnet)).max() > 0.1
    nnet.components["d"].test_mode = False
    assert (nnet3.ChunkComputer(nnet, test_mode=False).compute(X) == 0).any()


def test_requests_of_training_keep_the_mode_of_each_component(nnet):
    derivatives = nnet3.simple_request(nnet, len(X), derivatives=True)
    statistics = nnet3.simple_request(nnet, len(X))
    statistics.store_component_stats = True
    for request in derivatives, statistics:
        types = {op.type for op in nnet3.compile_request(nnet, request).ops}
        assert "nnet3.batch_norm" in types
        types = {op.type for op in nnet3.compile_request(nnet, request, test_mode=True).ops}
        assert "nnet3.batch_norm" not in types


def test_components_are_joined_on_a_copy(nnet):
    names = list(nnet.components)
    joined = for_inference(nnet)
    assert list(joined.components) == ["n", "d", "g", "s", "f.a"]
    assert list(nnet.components) == names
    kept = for_inference(nnet, collapse=False)
    assert list(kept.components) == names
    assert all(kept.components[name].test_mode for name in MODES)
    assert not any(nnet.components[name].test_mode for name in MODES)
    assert kept.components["a"] is nnet.components["a"]  # arrays are shared
    assert for_inference(joined) is joined
    assert for_inference(nnet, test_mode=False, collapse=False) is nnet


def test_priors_of_the_model(nnet):
    model = acoustic_model(nnet)
    expected = wanted(nnet) - np.log(PRIORS)
    for computer in (
        nnet3.ChunkComputer(model, priors=True),
        nnet3.LoopedComputer(model, None, True),
    ):
        np.testing.assert_allclose(computer.compute(X), expected, rtol=1e-4, atol=1e-4)
    model.set_priors(np.zeros(0, np.float32))
    assert nnet3.ChunkComputer(model, priors=True).log_priors is None
    assert nnet3.ChunkComputer(model, priors=False).log_priors is None
    with pytest.raises(ShapeError, match="a raw network"):
        nnet3.ChunkComputer(nnet, priors=True)


@pytest.mark.parametrize("way", WAYS)
def test_a_network_that_was_not_trained(way):
    nnet = nnet3.Nnet.from_config_text(NET, 1)
    with pytest.raises(FormatError, match=r"in n; .*not trained.*test_mode=False"):
        WAYS[way](nnet)
    assert nnet3.ChunkComputer(nnet, test_mode=False).compute(X).shape == (9, 4)


def test_what_no_output_needs_wants_no_statistics():
    text = NET.replace("output-node name=output input=s", "output-node name=output input=a")
    nnet = nnet3.Nnet.from_config_text(text, 1)
    for way in WAYS.values():
        assert way(nnet).shape == (9, 4)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_model(way, tmp_path):
    with pytest.raises(OpscopeError, match="a model is wanted.*you gave dict"):
        WAYS[way]({})
    (tmp_path / "features").write_text("u [ 1 2 ]\n")
    with pytest.raises(FormatError, match="features"):
        WAYS[way](tmp_path / "features")


def test_reading_finds_out_what_a_file_is(nnet, tmp_path):
    nnet.write(tmp_path / "raw")
    acoustic_model(nnet).write(tmp_path / "mdl")
    assert isinstance(read_model(tmp_path / "raw"), nnet3.Nnet)
    model = read_model(tmp_path / "mdl")
    assert isinstance(model, nnet3.AmNnetSimple) and np.allclose(model.priors, PRIORS)
