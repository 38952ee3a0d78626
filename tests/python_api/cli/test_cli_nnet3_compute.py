"""nnet3-compute and nnet3-compute-batch on the command line."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from opscope.framework.base.backend import gpu_present
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.python_api.cli.main import main

PLAIN = """input-node name=input dim=3
component name=a type=AffineComponent input-dim=6 output-dim=4
component name=n type=BatchNormComponent dim=4
component name=d type=DropoutComponent dim=4 dropout-proportion=0.5
component-node name=a component=a input=Append(Offset(input, -1), input)
component-node name=n component=n input=a
component-node name=d component=d input=n
output-node name=output input=d
"""
IVECTOR = """input-node name=input dim=3
input-node name=ivector dim=2
component name=a type=AffineComponent input-dim=5 output-dim=4
component-node name=a component=a input=Append(input, ReplaceIndex(ivector, t, 0))
output-node name=output input=a
"""
TRANSITIONS = b"<TransitionModel> x </TransitionModel> \n"
RNG = np.random.default_rng(0)
FEATURES = {key: RNG.normal(size=(n, 3)).astype(np.float32) for key, n in (("u", 7), ("v", 12))}
IVECTORS = {"s": np.array([1, 2], np.float32), "v": np.array([3, 4], np.float32)}
PRIORS = np.array([0.1, 0.2, 0.3, 0.4], np.float32)


def table(specifier, kind, values):
    with TableWriter(specifier, kind) as writer:
        for key, value in values.items():
            writer.write(key, value)


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run a program in a folder with models and features: (exit code, stderr, output)."""
    monkeypatch.chdir(tmp_path)
    nnet = Nnet.from_config_text(PLAIN, 1)
    normalize = nnet.components["n"]
    normalize.count = 2.0
    normalize.stats_sum = np.array([1.0, 2.0, 3.0, 4.0])
    normalize.stats_sumsq = np.array([9.0, 9.0, 9.0, 16.0])
    nnet.write("net.raw")
    Nnet.from_config_text(PLAIN, 1).write("new.raw")
    Nnet.from_config_text(IVECTOR, 1).write("ivector.raw")
    model = AmNnetSimple(nnet, TRANSITIONS, binary=False)
    model.set_context()
    model.set_priors(PRIORS)
    model.write("net.mdl")
    table("ark:feats.ark", "matrix", FEATURES)
    table("ark:ivectors.ark", "vector", IVECTORS)

    def run(*args, program="nnet3-compute"):
        result = CliRunner().invoke(main, [program, *args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        found = {}
        if result.exit_code == 0:
            found = dict(read_table("ark:out.ark", "matrix"))
        return result.exit_code, result.stderr, found

    return run


FILES = ("ark:feats.ark", "ark:out.ark")


def wanted(x, factor=1):
    """The output of PLAIN in test mode."""
    affine = Nnet.read("net.raw").components["a"]
    before = np.concatenate((x[:1], x[:-1]))
    hidden = np.concatenate((before, x), axis=1) @ affine.linear_params.T + affine.bias_params
    normalize = Nnet.read("net.raw").components["n"]
    mean = normalize.stats_sum / 2
    variance = normalize.stats_sumsq / 2 - mean**2
    normal = (hidden - mean) / np.sqrt(np.maximum(variance, 0) + normalize.epsilon)
    return 0.5 * normal[::factor]  # half of it would have been dropped


def test_output_in_test_mode(call):
    code, err, found = call("net.raw", *FILES)
    assert code == 0 and "Done 2 utterances, failed for 0" in err and "Time taken" in err
    assert list(found) == list(FEATURES)
    for key, x in FEATURES.items():
        assert np.allclose(found[key], wanted(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("batch", [1, 3])
def test_options(call, batch):
    code, err, found = call(
        "--frames-per-chunk=4",
        "--frame-subsampling-factor=3",
        "--acoustic-scale=0.5",
        "--apply-exp=true",
        "--use-priors=true",
        "--extra-left-context=2",
        "--extra-right-context-final=0",
        f"--minibatch-size={batch}",
        "--optimization.optimize=false",
        "net.mdl",
        *FILES,
    )
    assert code == 0 and "Increasing --frames-per-chunk from 4 to 6" in err
    for key, x in FEATURES.items():
        scores = np.exp(0.5 * (wanted(x, 3) - np.log(PRIORS)))
        assert np.allclose(found[key], scores, rtol=1e-4, atol=1e-4)


def test_batches(call):
    """The stream of utterances, options of its own, and what is told of minibatches."""
    code, err, found = call("net.raw", *FILES, program="nnet3-compute-batch")
    assert code == 0 and "Done 2 utterances, failed for 0" in err
    assert list(found) == list(FEATURES)
    for key, x in FEATURES.items():
        assert np.allclose(found[key], wanted(x), rtol=1e-4, atol=1e-4)
    code, err, found = call(
        "--frames-per-chunk=4",
        "--extra-left-context=2",
        "--extra-left-context-initial=0",
        "--acoustic-scale=0.5",
        "--apply-exp=true",
        "--use-priors=true",
        "--minibatch-size=8",
        "--edge-minibatch-size=2",
        "--partial-minibatch-factor=0.25",
        "--ensure-exact-final-context=true",
        "net.mdl",
        *FILES,
        program="nnet3-compute-batch",
    )
    assert code == 0, err
    for key, x in FEATURES.items():
        scores = np.exp(0.5 * (wanted(x) - np.log(PRIORS)))
        assert np.allclose(found[key], scores, rtol=1e-4, atol=1e-4)
    assert "5:4*2=1(100%)" in err and "7:4*8=1(37%)" in err
    assert "Did 5 tasks in 2 minibatches, taking " in err


def test_batches_refuse(call):
    for option, told in {
        "--edge-minibatch-size=0": "edge_chunks_per_batch is 0; it must be at least 1",
        "--partial-minibatch-factor=1": "partial_batch_factor is 1.0; it must be",
        "--looped=true": "--looped",
    }.items():
        code, err, _ = call(option, "net.raw", *FILES, program="nnet3-compute-batch")
        assert code and told in err


def test_looped(call):
    options = "--looped=true", "--frames-per-chunk=3", "--use-priors=true"
    code, err, found = call(*options, "net.mdl", *FILES)
    assert code == 0 and "Done 2 utterances" in err
    for key, x in FEATURES.items():
        assert np.allclose(found[key], wanted(x) - np.log(PRIORS), rtol=1e-4, atol=1e-4)
    code, err, found = call("--looped=true", "--extra-right-context=2", "net.mdl", *FILES)
    assert code == 1 and "--extra-right-context has no meaning with --looped=true" in err


def test_model_file_without_priors(call):
    found = call("--optimization.convert-addition=false", "net.mdl", *FILES)[2]
    assert np.allclose(found["u"], wanted(FEATURES["u"]), rtol=1e-4, atol=1e-4)


def test_ivectors(call):
    with open("utt2spk", "w") as file:
        file.write("u s\nv s\n")
    code, err, by_speaker = call(
        "--ivectors=ark:ivectors.ark", "--utt2spk=ark:utt2spk", "ivector.raw", *FILES
    )
    assert code == 0 and list(by_speaker) == ["u", "v"]
    code, err, found = call("--ivectors=ark:ivectors.ark", "ivector.raw", *FILES)
    assert code == 0 and list(found) == ["v"]
    assert "WARNING" in err and "No iVector available for utterance u" in err
    assert "Done 1 utterances, failed for 1" in err
    affine = Nnet.read("ivector.raw").components["a"]
    rows = np.concatenate((FEATURES["v"], np.tile(IVECTORS["v"], (12, 1))), axis=1)
    assert np.allclose(found["v"], rows @ affine.linear_params.T + affine.bias_params, atol=1e-5)
    table("ark:online.ark", "matrix", {"v": IVECTORS["v"][None]})
    options = ("--online-ivectors=ark:online.ark", "--online-ivector-period=10")
    code, err, online = call(*options, "ivector.raw", *FILES)
    assert code == 0 and np.allclose(online["v"], found["v"], atol=1e-6)
    assert "No online iVector available for utterance u" in err


def test_nothing_could_be_computed(call):
    table("ark:feats.ark", "matrix", {"empty": np.zeros((0, 3), np.float32)})
    code, err, _ = call("net.raw", *FILES)
    assert code == 1 and "Zero-length utterance: empty" in err
    assert "Done 0 utterances, failed for 1" in err


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("ivector.raw", *FILES), "u: the network wants an iVector of 2 columns, you gave none"),
        (("--ivectors=ark:ivectors.ark", "--utt2spk=ark:none", "net.raw", *FILES), "none: "),
        (("--use-priors=true", "net.raw", *FILES), "net.raw"),
        (("--use-gpu=maybe", "net.raw", *FILES), "--use-gpu=maybe is none of yes, no"),
        (("--frames-per-chunk=0", "net.raw", *FILES), "frames_per_chunk is 0"),
        (("--online-ivectors=ark:x", "net.raw", *FILES), "--online-ivector-period above 0"),
        (("--ivectors=ark:x", "--online-ivectors=ark:y", "net.raw", *FILES), "exclude each other"),
        (("none.raw", *FILES), "none.raw"),
        (("new.raw", *FILES), "new.raw: no statistics for batch normalization in n;"),
        (("net.raw", "ark:none.ark", "ark:out.ark"), "none.ark"),
        (("net.raw", *FILES, "--apply-exp=true"), "must stand before the file names"),
    ],
)
def test_refusals(call, args, part):
    code, err, _ = call(*args)
    assert code == 1
    assert err.splitlines()[-1].startswith("ERROR (nnet3-compute") and part in err


def test_wrong_width(call):
    table("ark:feats.ark", "matrix", {"u": np.zeros((5, 4), np.float32)})
    code, err, _ = call("net.raw", *FILES)
    assert code == 1 and "u: the input wants 3 columns, you gave 4" in err


def test_gpu(call):
    code, err, _ = call("--use-gpu=yes", "net.raw", *FILES)
    assert gpu_present() or (code == 1 and "a GPU was asked for" in err)
    code, err, found = call("--use-gpu=optional", "net.raw", *FILES)
    assert code == 0, err
    assert np.allclose(found["u"], wanted(FEATURES["u"]), rtol=1e-3, atol=1e-3)
