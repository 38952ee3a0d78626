"""The programs for LF-MMI on a small network, one after the other, and their mistakes."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from chain_graphs import random_hmm, random_supervision
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.fst.files.fst_io import write_fst
from opscope.kaldi.fst.fst import Fst
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.chain.examples import NnetChainExample, NnetChainSupervision
from opscope.nnet3.files.examples import NnetIo
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.training.lda import LdaStats
from opscope.python_api.cli.main import main

CONFIG = """
input-node name=input dim=2
component name=affine type=NaturalGradientAffineComponent input-dim=2 output-dim=3
component-node name=affine component=affine input=input
output-node name=output input=affine
component name=xent type=NaturalGradientAffineComponent input-dim=2 output-dim=3
component-node name=xent component=xent input=input
component name=logs type=LogSoftmaxComponent dim=3
component-node name=logs component=logs input=xent
output-node name=output-xent input=logs
"""


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    nnet = Nnet.from_config_text(CONFIG, 0)
    nnet.write(str(tmp_path / "0.raw"))
    writer = Writer(header=False)
    write_fst(random_hmm(rng), writer)
    writer.save(tmp_path / "den.fst")
    indexes = np.array([[0, t, 0] for t in range(4)], np.int32)
    with TableWriter(f"ark:{tmp_path}/egs.ark", "chain_example") as table:
        for number in range(12):
            features = rng.normal(size=(4, 2)).astype(np.float32)
            supervision = random_supervision(rng, frames=4)
            output = NnetChainSupervision("output", indexes, supervision)
            table.write(
                f"eg{number}", NnetChainExample([NnetIo("input", indexes, features)], [output])
            )
    return tmp_path


def run(folder, program, *args, code=0):
    result = CliRunner().invoke(main, [program, *args])
    assert result.exit_code == code, result.output
    return result.output


def test_training_improves_the_objective(files):
    options = ["--leaky-hmm-coefficient=0.1", "--xent-regularize=0.1"]
    graph, examples = str(files / "den.fst"), f"ark:{files}/egs.ark"
    models = [str(files / f"{number}.raw") for number in range(4)]
    for before, after in zip(models[:-1], models[1:], strict=True):
        output = run(files, "nnet3-chain-train", *options, before, graph, examples, after)
        assert "Overall average objective function for 'output-xent'" in output
    found = []
    for model in (models[0], models[-1]):
        output = run(files, "nnet3-chain-compute-prob", *options, model, graph, examples)
        line = [x for x in output.splitlines() if "'output' is" in x][0]
        found.append(float(line.split(" is ")[1].split()[0]))
        assert "over 48 frames" in line
    assert found[1] > found[0]


def test_a_graph_for_another_network(files):
    config = CONFIG.replace("output-dim=3", "output-dim=2").replace("dim=3", "dim=2")
    Nnet.from_config_text(config).write(str(files / "0.raw"))
    args = (
        str(files / "0.raw"),
        str(files / "den.fst"),
        f"ark:{files}/egs.ark",
        str(files / "1.raw"),
    )
    output = run(files, "nnet3-chain-train", *args, code=1)
    assert "labels 1 to 3, the network 2 outputs" in output
    assert not (files / "1.raw").exists()


def test_examples_for_another_network(files):
    config = CONFIG.replace("input-node name=input dim=2", "input-node name=input dim=4")
    Nnet.from_config_text(config.replace("input-dim=2", "input-dim=4")).write(str(files / "0.raw"))
    args = (
        str(files / "0.raw"),
        str(files / "den.fst"),
        f"ark:{files}/egs.ark",
        str(files / "1.raw"),
    )
    output = run(files, "nnet3-chain-train", *args, code=1)
    assert "eg0" in output and "2 columns" in output and "4" in output


@pytest.fixture
def recipe(files, monkeypatch):
    """Features, supervisions and graphs; runs programs there."""
    monkeypatch.chdir(files)
    rng = np.random.default_rng(1)
    with (
        TableWriter("ark:feats.ark", "matrix") as feats,
        TableWriter("ark:sup.ark", "supervision") as supervisions,
    ):
        for number in range(8):
            feats.write(f"u{number}", rng.normal(size=(31, 2)).astype(np.float32))
            supervisions.write(f"u{number}", random_supervision(rng, frames=30))

    writer = Writer(header=False)
    anything = [0, 0, 0], [1, 2, 3], [0.5, 1.0, 1.5], [0, 0, 0], [0.25]
    write_fst(Fst.of_arcs(*map(np.array, anything)), writer)
    writer.save("norm.fst")

    def call(*args, code=0):
        return run(files, *args, code=code)

    return call


GET = ("nnet3-chain-get-egs", "--num-frames=10,8", "--left-context=1", "--right-context=1")


def test_a_recipe(recipe):
    out = recipe(*GET, "ark:feats.ark", "ark:sup.ark", "ark:bare.ark")
    assert "Split 8 utts" in out
    args = "0.raw", "den.fst", "ark:bare.ark", "1.raw"
    assert "nnet3-chain-normalize-egs" in recipe("nnet3-chain-train", *args, code=1)
    recipe("nnet3-chain-normalize-egs", "norm.fst", "ark:bare.ark", "ark:norm.ark")
    recipe(*GET, "norm.fst", "ark:feats.ark", "ark:sup.ark", "ark:direct.ark")
    sizes = []
    for name in ("ark:norm.ark", "ark:direct.ark"):
        table = read_table(name, "chain_example")
        sizes.append({key: len(e.outputs[0].supervision.fst.final) for key, e in table})
    assert sizes[0] == sizes[1] and len(sizes[0]) >= 24
    recipe("nnet3-chain-copy-egs", "--frame-shift=1", "ark:norm.ark", "ark:a.ark", "ark:b.ark")
    recipe("nnet3-chain-shuffle-egs", "--srand=1", "ark:a.ark", "ark:shuffled.ark")
    out = recipe("nnet3-chain-merge-egs", "--minibatch-size=4", "ark:shuffled.ark", "ark:m.ark")
    assert "minibatches, discarding" in out
    recipe("nnet3-chain-subset-egs", "--n=3", "ark:b.ark", "ark:valid.ark")
    cache = "--write-cache=cache.1", "--use-gpu=no"
    recipe("nnet3-chain-train", *cache, "0.raw", "den.fst", "ark:m.ark", "1.raw")
    cache = "--read-cache=cache.1", "--use-gpu=no"
    out = recipe("nnet3-chain-train", *cache, "0.raw", "den.fst", "ark:m.ark", "2.raw")
    assert "Read computation cache from cache.1" in out
    with open("1.raw", "rb") as one, open("2.raw", "rb") as two:
        assert one.read() == two.read()
    models = "1.raw", "0.raw"
    out = recipe("nnet3-chain-combine", "den.fst", *models, "ark:valid.ark", "final.raw")
    assert "Combining last 2 models" in out
    out = recipe("nnet3-chain-compute-prob", "final.raw", "den.fst", "ark:valid.ark")
    assert ":PrintTotalStats():nnet-chain-diagnostics.cc:" in out


def test_statistics_for_lda(recipe):
    recipe(*GET, "ark:feats.ark", "ark:sup.ark", "ark:bare.ark")
    recipe("nnet3-chain-normalize-egs", "norm.fst", "ark:bare.ark", "ark:norm.ark")
    for number in (1, 2):
        args = "0.raw", "ark:norm.ark", f"{number}.acc"
        out = recipe("nnet3-chain-acc-lda-stats", "--rand-prune=0.0", *args)
        assert "soft frame count = " in out
    recipe("sum-lda-accs", "both.acc", "1.acc", "2.acc")
    one, both = (LdaStats.read(Reader(name)) for name in ("1.acc", "both.acc"))
    np.testing.assert_allclose(both.counts, 2 * one.counts, rtol=1e-5)
    merged = "nnet3-chain-merge-egs", "--minibatch-size=1:2", "ark:norm.ark", "ark:m.ark"
    recipe(*merged)
    out = recipe("nnet3-chain-acc-lda-stats", "0.raw", "ark:m.ark", "x.acc", code=1)
    assert "not merged" in out


def test_supervision_that_does_not_fit(recipe):
    options = "--frame-subsampling-factor=3", "ark:feats.ark", "ark:sup.ark", "ark:x.ark"
    out = recipe(*GET, *options, code=1)
    assert "u0 has 31 frames and 30 targets" in out and "8 utterances had errors" in out
    with TableWriter("ark:weights.ark", "vector") as weights:
        weights.write("u1", np.ones(30, np.float32))
        weights.write("u2", np.ones(3, np.float32))
    option = "--deriv-weights-rspecifier=ark:weights.ark"
    out = recipe(*GET, option, "ark:feats.ark", "ark:sup.ark", "ark:x.ark")
    assert "No deriv weights for utterance u0" in out and "u2 has 3 deriv weights" in out
    keys = {key.split("-")[0] for key, _ in read_table("ark:x.ark", "chain_example")}
    assert keys == {"u1"}
    bad = "--normalization-fst-scale=-1", "norm.fst", "ark:x.ark", "ark:y.ark"
    assert "negative" in recipe("nnet3-chain-normalize-egs", *bad, code=1)


def test_whole_utterances(recipe, files):
    topology = (
        "<TransitionModel> <Topology> <TopologyEntry> <ForPhones> 1 2 </ForPhones> <State> 0"
        " <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 </State>"
        " <State> 1 </State> </TopologyEntry> </Topology> <Tuples> 2 1 0 0 1 2 0 2 1 </Tuples>"
        " <LogProbs> [ 0 -0.7 -0.7 -0.7 -0.7 ] </LogProbs> </TransitionModel>\n"
    )
    (files / "trans.mdl").write_text(topology)
    graph = "0 1 2 7\n1 1 1 0\n1 2 4 0\n2 2 3 0\n2\n\n"
    long = "".join(f"{n} {n + 1} 2 0\n" for n in range(40)) + "40\n\n"
    lines = [f"u{n} \n{long if n == 3 else graph}" for n in range(8)]
    (files / "graphs.txt").write_text("".join(lines))
    args = "ark:feats.ark", "ark,t:graphs.txt", "trans.mdl", "ark:e2e.ark"
    program = "nnet3-chain-e2e-get-egs", "--num-frames=30,34", "--left-context=1"
    out = recipe(*program, "--right-context=1", "norm.fst", *args)
    assert "u1 has 31 frames; it is made to have 30" in out
    assert "u3: the graph wants 40 frames at least, and there are 30" in out
    made = dict(read_table("ark:e2e.ark", "chain_example"))
    assert set(made) == {f"u{n}" for n in range(8)} - {"u3"}
    assert all(len(e.inputs[0].indexes) == 32 for e in made.values())
    recipe("nnet3-chain-merge-egs", "--minibatch-size=7", "ark:e2e.ark", "ark:m.ark")
    options = "--leaky-hmm-coefficient=0.1", "0.raw", "den.fst", "ark:m.ark"
    recipe("nnet3-chain-train", *options, "1.raw")
    recipe("nnet3-chain-compute-prob", "--leaky-hmm-coefficient=0.1", "1.raw", *options[2:])
    out = recipe("nnet3-chain-e2e-get-egs", "--num-frames=50", *args, code=1)
    assert "u0: 31 frames, and the nearest allowed length is 50" in out
    (files / "one.txt").write_text(f"u \n{graph}")
    out = recipe("chain-make-num-fst-e2e", "trans.mdl", "norm.fst", "ark,t:one.txt", "ark:num.ark")
    assert "Converted 1 Fsts with transition-id" in out
    (fst,) = (fst for _, fst in read_table("ark:num.ark", "fst"))
    assert [*zip(fst.source(), fst.ilabel, fst.weight, fst.nextstate, strict=True)] == [
        (0, 1, 0.5, 1),
        (1, 2, 1.0, 1),
        (1, 3, 1.5, 2),
        (2, 2, 1.0, 2),
    ]
    assert fst.final.tolist() == [np.inf, np.inf, 0.25]
