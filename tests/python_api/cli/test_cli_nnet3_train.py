"""Kaldi's programs for examples and training on the command line, one after the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kaldi_data import need
from kaldi_models import one_state_model
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.training.lda import LdaStats
from opscope.python_api.cli.main import main

CONFIG = """input-node name=input dim=4
component name=a type=NaturalGradientAffineComponent input-dim=12 output-dim=16 max-change=0.75
component name=r type=RectifiedLinearComponent dim=16 self-repair-scale=1e-05
component name=n type=BatchNormComponent dim=16
component name=b type=NaturalGradientAffineComponent input-dim=16 output-dim=3
component name=s type=LogSoftmaxComponent dim=3
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=r component=r input=a
component-node name=n component=n input=r
component-node name=b component=b input=n
component-node name=s component=s input=b
output-node name=output input=s
"""
TRANSITIONS = one_state_model(1, leaves=-0.5)


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run a program in a folder with features, targets and a network: (exit code, stderr)."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    with (
        TableWriter("ark:feats.ark", "matrix") as feats,
        TableWriter("ark:post.ark", "posterior") as posts,
        TableWriter("ark:targets.ark", "matrix") as targets,
    ):
        for number in range(12):
            labels = rng.integers(0, 3, 23)
            centers = np.eye(3, 4)[labels] * 3
            features = (centers + rng.normal(size=(23, 4))).astype(np.float32)
            feats.write(f"u{number:02}", features)
            posts.write(f"u{number:02}", Posterior.from_frames([[(k, 1.0)] for k in labels]))
            targets.write(f"u{number:02}", centers.astype(np.float32))
    Nnet.from_config_text(CONFIG, 1).write("0.raw")

    def run(*args, status=0):
        result = CliRunner().invoke(main, [str(arg) for arg in args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status, result.stderr
        return result.stderr

    return run


GET = ("nnet3-get-egs", "--num-pdfs=3", "--left-context=1", "--right-context=1", "--num-frames=8")


@pytest.fixture
def merged(call):
    """The same, with `egs.ark` and `merged.ark`."""
    call(*GET, "ark:feats.ark", "ark:post.ark", "ark:egs.ark")
    call("nnet3-merge-egs", "--minibatch-size=8,1:4", "ark:egs.ark", "ark:merged.ark")
    return call


def keys(name):
    return [key for key, _ in read_table(f"ark:{name}", "example")]


def test_examples(merged):
    made = keys("egs.ark")
    assert len(made) == 36 and made[0] == "u00-0"
    assert keys("merged.ark")[0] == "merged-0-8"
    merged("nnet3-shuffle-egs", "--srand=1", "ark:egs.ark", "ark:shuffled.ark")
    assert sorted(keys("shuffled.ark")) == sorted(made) and keys("shuffled.ark") != made
    merged("nnet3-subset-egs", "--n=5", "ark:egs.ark", "ark:five.ark")
    assert len(set(keys("five.ark"))) == 5
    options = ("--frame=2", "--left-context=0", "--right-context=1")
    merged("nnet3-copy-egs", *options, "ark:egs.ark", "ark:a.ark", "ark:b.ark")
    assert len(keys("a.ark")) == len(keys("b.ark")) == 18
    _, example = next(read_table("ark:a.ark", "example"))
    assert example.io[0].indexes[:, 1].tolist() == [2, 3]


def test_dense_and_xvector_examples(call):
    call(
        "nnet3-get-egs-dense-targets",
        "--num-frames=23",
        "ark:feats.ark",
        "ark:targets.ark",
        "ark:d.ark",
    )
    assert next(read_table("ark:d.ark", "example"))[1].io[1].features.shape == (23, 4)
    Path("ranges").write_text("u00 0 0 3 10 1\nu00 1 7 0 20 2\nu01 0 0 0 90 0\n")
    err = call(
        "nnet3-xvector-get-egs",
        "--num-pdfs=3",
        "ranges",
        "ark:feats.ark",
        "ark:x.ark",
        "ark:y.ark",
        status=1,
    )
    assert keys("x.ark") == ["u00-3-10-1"] and keys("y.ark") == ["u00-0-20-2"]
    assert "a chunk of 90 frames of an utterance that has 23" in err


def test_training(merged):
    err = merged("nnet3-train", "--print-interval=2", "0.raw", "ark:merged.ark", "1.raw")
    assert "LOG (nnet3-train[" in err and "Wrote model to 1.raw" in err
    assert "Average objective function for 'output' for minibatches 0-1 is -" in err
    assert "Overall average objective function for 'output' is -" in err
    before = merged("nnet3-compute-prob", "0.raw", "ark:merged.ark")
    assert "WARNING" in before and "n: no statistics for test mode" in before
    err = merged("nnet3-compute-prob", "1.raw", "ark:merged.ark")
    assert "Overall log-likelihood for 'output' is -" in err
    assert "Overall accuracy for 'output' is 0." in err
    merged("nnet3-train", "--srand=1", "0.raw", "ark:merged.ark", "2.raw")
    merged("nnet3-average", "1.raw", "2.raw", "mean.raw")
    mean = (Nnet.read("1.raw").vectorize() + Nnet.read("2.raw").vectorize()) / 2
    np.testing.assert_allclose(Nnet.read("mean.raw").vectorize(), mean, rtol=1e-5, atol=1e-7)
    err = merged("nnet3-combine", "2.raw", "1.raw", "0.raw", "ark:merged.ark", "best.raw")
    assert "Combining 2 nnets" in err or "Combining 1 nnets" in err
    err = merged("nnet3-show-progress", "0.raw", "1.raw", "ark:merged.ark")
    assert "Total objf change per component is [ a:" in err
    assert "Relative parameter differences per layer are [ a:0." in err


def test_training_is_repeatable(merged):
    for output in ("1.raw", "2.raw"):
        merged("nnet3-train", "--srand=5", "0.raw", "ark:merged.ark", output)
    assert Path("1.raw").read_bytes() == Path("2.raw").read_bytes()


def test_lda(merged):
    Path("splice.config").write_text(
        "input-node name=input dim=4\n"
        "output-node name=output input=Append(Offset(input, -1), input)\n"
    )
    merged("nnet3-init", "splice.config", "splice.raw")
    err = merged("nnet3-acc-lda-stats", "splice.raw", "ark:merged.ark", "lda.acc")
    assert "soft frame count = 276." in err
    stats = LdaStats.read(Reader("lda.acc"))
    merged("nnet3-acc-lda-stats", "--binary=false", "splice.raw", "ark:merged.ark", "text.acc")
    np.testing.assert_allclose(LdaStats.read(Reader("text.acc")).squares, stats.squares, rtol=1e-4)
    merged("nnet-get-feature-transform", "--dim=3", "lda.mat", "lda.acc", "text.acc")
    transform = Reader("lda.mat").read_matrix(np.float32)
    assert transform.shape == (3, 9)
    total, between, mean = stats.covariances()
    np.testing.assert_allclose(transform[:, :8] @ mean + transform[:, 8], 0, atol=1e-4)
    spread = transform[:, :8] @ (total - between) @ transform[:, :8].T
    np.testing.assert_allclose(spread, np.diag(np.diag(spread)), atol=1e-3)


def test_acoustic_models(merged):
    Path("trans").write_text(TRANSITIONS)
    merged("nnet3-am-init", "--binary=false", "trans", "0.raw", "0.mdl")
    assert AmNnetSimple.read("0.mdl").left_context == 1
    Path("counts").write_text("[ 1 2 1 ]\n")
    err = merged("nnet3-am-adjust-priors", "0.mdl", "counts", "1.mdl")
    assert "Model did not previously have priors attached." in err
    np.testing.assert_allclose(AmNnetSimple.read("1.mdl").priors, [0.25, 0.5, 0.25])
    Path("counts").write_text("[ 1 1 2 ]\n")
    err = merged("nnet3-am-adjust-priors", "1.mdl", "counts", "2.mdl")
    assert "largest absolute difference was for pdf 1, 0.5 -> 0.25" in err


def test_an_acoustic_model_from_a_tree(call):
    tree, topo = need("formats", "tree"), need("formats", "topo")
    call("nnet3-am-init", tree, topo, "0.raw", "0.mdl")
    made = AmNnetSimple.read("0.mdl").transition_model
    theirs = AmNnetSimple.read(need("formats", "final.mdl")).transition_model
    mark = b"<LogProbs>"  # those of the other one were trained since
    assert made.split(mark)[0] == theirs.split(mark)[0]


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ((*GET[:1], "ark:feats.ark", "ark:post.ark", "ark:x"), "--num-pdfs is required"),
        ((GET[0], "--num-pdfs=2", "ark:feats.ark", "ark:post.ark", "ark:x"), "but there are 2"),
        (("nnet3-merge-egs", "--minibatch-size=x", "ark:egs.ark", "ark:x"), "is no number"),
        (("nnet3-train", "--momentum=2", "0.raw", "ark:merged.ark", "x"), "momentum=2"),
        (("nnet3-train", "wide.raw", "ark:merged.ark", "x"), "has 4 columns, the node"),
        (("nnet3-train", "other.raw", "ark:merged.ark", "x"), "'output', but the network has no"),
        (("nnet3-average", "--weights=1:x", "0.raw", "0.raw", "x"), "are no numbers"),
        (("nnet3-copy-egs", "--frame=1", "ark:merged.ark", "ark:x"), "merged"),
    ],
)
def test_refusals(merged, args, part):
    wide = CONFIG.replace("dim=4", "dim=5").replace("input-dim=12", "input-dim=15")
    Nnet.from_config_text(wide, 1).write("wide.raw")
    Nnet.from_config_text(CONFIG.replace("name=output ", "name=out "), 1).write("other.raw")
    assert part in merged(*args, status=1)
    assert not Path("x").exists()


def test_features_that_are_no_numbers(call):
    with TableWriter("ark:nan.ark", "matrix") as feats:
        for number, value in enumerate((1.0, np.nan)):
            feats.write(f"u{number:02}", np.full((23, 4), value, np.float32))
    assert "u01: the features hold NaN" in call(
        *GET, "ark:nan.ark", "ark:post.ark", "ark:x", status=1
    )
    err = call(*GET, "--skip-nan=true", "ark:nan.ark", "ark:post.ark", "ark:x")
    assert "1 utterances had errors and could not be processed." in err
    assert {key[:3] for key in keys("x")} == {"u00"}
    dense = "nnet3-get-egs-dense-targets", "--num-frames=8", "ark:feats.ark"
    with TableWriter("ark:bad.ark", "matrix") as targets:
        for number in range(12):
            value = np.nan if number == 5 else 0.0
            targets.write(f"u{number:02}", np.full((23, 4), value, np.float32))
    assert "u05: the targets hold NaN" in call(*dense, "ark:bad.ark", "ark:x", status=1)
    ivectors = "--online-ivectors=ark:bad.ark", "--skip-nan"
    err = call(*dense[:2], *ivectors, "ark:feats.ark", "ark:targets.ark", "ark:x")
    assert "u05: the iVectors hold NaN" in err and "1 utterances had errors" in err


def test_priors_from_outputs_and_transitions_from_alignments(merged):
    Path("trans.txt").write_text(TRANSITIONS)
    config = CONFIG.replace("output-dim=3", "output-dim=1")
    config = config.replace("LogSoftmaxComponent dim=3", "LogSoftmaxComponent dim=1")
    Path("one.config").write_text(config)
    merged("nnet3-init", "one.config", "one.raw")
    merged("nnet3-am-init", "trans.txt", "one.raw", "one.mdl")
    with TableWriter("ark:ali.ark", "int_vector") as alis:
        alis.write("u", np.array([1] * 9 + [2] * 3))
    err = merged("nnet3-am-train-transitions", "one.mdl", "ark:ali.ark", "two.mdl")
    assert "Accumulated transition stats from 1 utterances." in err
    model = AmNnetSimple.read("two.mdl")
    assert model.priors.tolist() == [1.0]
    merged("copy-transition-model", "--binary=false", "two.mdl", "two.txt")
    assert "[ 0 -0.2876821 -1.386294 ]" in Path("two.txt").read_text()
    with TableWriter("ark:bad.ark", "int_vector") as alis:
        alis.write("u", np.array([1, 7]))
    err = merged("nnet3-am-train-transitions", "one.mdl", "ark:bad.ark", "x.mdl", status=1)
    assert "u: a transition-id is none of 1 to 2" in err


def test_outputs_of_examples(merged):
    merged("nnet3-train", "0.raw", "ark:merged.ark", "1.raw")
    merged("nnet3-compute-from-egs", "--apply-exp", "1.raw", "ark:merged.ark", "ark:out.ark")
    found = dict(read_table("ark:out.ark", "matrix"))
    for key, example in read_table("ark:merged.ark", "example"):
        rows = [len(io.indexes) for io in example.io if io.name == "output"]
        assert found[key].shape == (rows[0], 3)
        np.testing.assert_allclose(found[key].sum(axis=1), 1, rtol=1e-5)
    merged("matrix-sum-rows", "ark:out.ark", "ark:rows.ark")
    merged("vector-sum", "ark:rows.ark", "sum.vec")
    total = Reader("sum.vec").read_vector(np.float32).sum()
    assert total == pytest.approx(sum(map(len, found.values())), rel=1e-5)


def test_acoustic_models_where_networks_are_wanted(merged):
    Path("trans.txt").write_text(TRANSITIONS)
    for number in (0, 1):
        Nnet.from_config_text(CONFIG, number).write(f"{number}.raw")
        merged("nnet3-am-init", "trans.txt", f"{number}.raw", f"{number}.mdl")
    merged("nnet3-train", "0.mdl", "ark:merged.ark", "new.raw")
    merged("nnet3-average", "0.mdl", "1.mdl", "mean.raw")
    merged("nnet3-combine", "0.mdl", "1.mdl", "ark:merged.ark", "best.raw")
    merged("nnet3-show-progress", "--verbose=2", "0.mdl", "1.mdl")
    err = merged("nnet3-compute-prob", "new.raw", "ark:merged.ark")
    # Kaldi's scripts look for this place in logs.
    assert ":PrintTotalStats():nnet-diagnostics.cc:" in err


def test_cache_of_computations(merged):
    options = "--srand=3", "--compiler.use-shortcut=true"
    merged("nnet3-train", *options, "--write-cache=c.1", "0.raw", "ark:merged.ark", "1.raw")
    text = "--binary-write-cache=false", "--write-cache=c.2"
    merged("nnet3-train", *options, *text, "0.raw", "ark:merged.ark", "2.raw")
    for name in ("c.1", "c.2"):
        args = f"--read-cache={name}", "0.raw", "ark:merged.ark", "3.raw"
        assert f"Read computation cache from {name}" in merged("nnet3-train", *options, *args)
        assert Path("3.raw").read_bytes() == Path("1.raw").read_bytes()
    for name, data in (("none", None), ("damaged", Path("c.1").read_bytes()[:-9])):
        if data is not None:
            Path(name).write_bytes(data)
        args = f"--read-cache={name}", "0.raw", "ark:merged.ark", "3.raw"
        err = merged("nnet3-train", *options, *args)
        assert "Could not open cached computation." in err and name in err


def test_singular_values(merged):
    assert "singular" not in info("0.raw") and "singular" not in info("--verbose=1", "0.raw")
    text = info("--verbose=2", "0.raw")
    assert text.count("linear-params-singular-values=[") == 2


def info(*args):
    return CliRunner().invoke(main, ["nnet3-info", *args]).stdout
