"""Chain models of several languages, and posteriors of chain models."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

from chain_graphs import random_hmm, random_supervision
from kaldi_models import call_main
from opscope.kaldi.files.kaldi_io import Writer
from opscope.kaldi.fst.files.fst_io import write_fst
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.chain.denominator import DenominatorGraph, denominator
from opscope.nnet3.chain.examples import NnetChainExample, NnetChainSupervision
from opscope.nnet3.files.examples import NnetIo
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.programs.base.graphs import open_fst

_CONFIG = """input-node name=input dim=2
component name=h type=NaturalGradientAffineComponent input-dim=2 output-dim=4
component-node name=h component=h input=input
component name=t type=TanhComponent dim=4
component-node name=t component=t input=h
"""
_OUTPUT = """component name={0} type=NaturalGradientAffineComponent input-dim=4 output-dim=3
component-node name={0} component={0} input=t
output-node name=output{1} input={0}
component name={0}-logs type=LogSoftmaxComponent dim=3
component-node name={0}-logs component={0}-logs input={0}
output-node name=output{1}-xent input={0}-logs
"""
LANGUAGES = "en", "fr"
OPTIONS = (
    *("--leaky-hmm-coefficient=0.1", "--xent-regularize=0.1", "--srand=3"),
    *("--out-of-range-regularize=0", "--print-interval=1"),
)
FEATURES = {"u": 11, "v": 6}


def run(*args: str, code: int = 0) -> str:
    status, out, err = call_main(*args)
    assert status == code, err
    return out.decode() + err


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """Networks with one output and with one for each language; graphs; examples of both."""
    monkeypatch.chdir(tmp_path)
    one = _CONFIG + _OUTPUT.format("o", "")
    many = _CONFIG + "".join(_OUTPUT.format(name, f"-{name}") for name in LANGUAGES)
    Nnet.from_config_text(one, 0).write("one.raw")
    Nnet.from_config_text(one.replace("name=output", "name=output-default"), 0).write("0.raw")
    Nnet.from_config_text(many, 1).write("many.raw")
    os.mkdir("den")
    rng = np.random.default_rng(0)
    indexes = np.array([[0, t, 0] for t in range(4)], np.int32)
    for name in ("default", *LANGUAGES):
        writer = Writer(header=False)
        write_fst(random_hmm(rng), writer)
        writer.save(f"den/{name}.den.fst")
    with (
        TableWriter("ark:plain.egs", "chain_example") as plain,
        TableWriter("ark:lang.egs", "chain_example") as lang,
    ):
        for number in range(12):
            features = rng.normal(size=(4, 2)).astype(np.float32)
            output = NnetChainSupervision("output", indexes, random_supervision(rng, frames=4))
            example = NnetChainExample([NnetIo("input", indexes, features)], [output])
            plain.write(f"eg{number}", example)
            lang.write(f"eg{number}?lang={LANGUAGES[number % 2]}", example)
    with TableWriter("ark:feats.ark", "matrix") as writer:
        for key, rows in FEATURES.items():
            writer.write(key, rng.normal(size=(rows, 2)).astype(np.float32))


def objective(told: str, output: str) -> float:
    found = re.search(rf"Overall average objective function for '{output}' is (\S+)", told)
    assert found is not None, told
    return float(found[1])


def test_one_language_is_trained_as_one_output():
    merge = "nnet3-chain-merge-egs", "--minibatch-size=4", "ark:plain.egs", "ark:merged.egs"
    run(*merge)
    told = run(
        "nnet3-chain-train", *OPTIONS, "one.raw", "den/default.den.fst", "ark:merged.egs", "a"
    )
    named = run("nnet3-chain-train2", *OPTIONS, "0.raw", "den", "ark:merged.egs", "b")
    for ending in ("", "-xent"):
        found = objective(named, f"output-default{ending}")
        assert found == objective(told, f"output{ending}")
    assert np.array_equal(Nnet.read("a").vectorize(), Nnet.read("b").vectorize())
    told = run("nnet3-chain-combine", "den/default.den.fst", "a", "one.raw", "ark:merged.egs", "c")
    named = run("nnet3-chain-combine2", "den", "b", "0.raw", "ark:merged.egs", "d")
    lines = [re.findall(r"\) (Combining .*)", each) for each in (told, named)]
    assert lines[0] == lines[1] and len(lines[0]) == 2
    assert np.array_equal(Nnet.read("c").vectorize(), Nnet.read("d").vectorize())


@pytest.mark.parametrize("by_merging", [False, True])
def test_each_language_has_its_output_and_graph(by_merging):
    merge = "nnet3-chain-merge-egs", f"--multilingual-eg={str(by_merging).lower()}"
    source = "ark:lang.egs"
    if by_merging:
        run(*merge, "--minibatch-size=1:3", source, "ark:merged.egs")
        source = "ark:merged.egs"
    wanted = {}
    for name in LANGUAGES:
        run(
            "nnet3-copy",
            f"--edits=rename-node old-name=output-{name} new-name=output;"
            f"rename-node old-name=output-{name}-xent new-name=output-xent",
            "many.raw",
            "part.raw",
        )
        with TableWriter("ark:part.egs", "chain_example") as writer:
            for key, example in read_table("ark:lang.egs", "chain_example"):
                if key.endswith(name):
                    writer.write(key, example)
        options = OPTIONS[:2]
        told = run(
            "nnet3-chain-compute-prob", *options, "part.raw", f"den/{name}.den.fst", "ark:part.egs"
        )
        found = re.search(r"'output' is (\S+) per frame", told)
        assert found is not None
        wanted[name] = float(found[1])
    still = "nnet3-copy --learning-rate=0 many.raw still.raw".split()
    run(*still)
    told = run("nnet3-chain-train2", *OPTIONS, "still.raw", "den", source, "x.raw")
    for name in LANGUAGES:
        assert objective(told, f"output-{name}") == pytest.approx(wanted[name], rel=1e-4)
    told = run("nnet3-chain-combine2", OPTIONS[0], "den", "many.raw", source, "x.raw")
    found = re.search(r"using the last model is (\S+)", told)
    assert found is not None
    assert float(found[1]) == pytest.approx(sum(wanted.values()) / 2, rel=1e-4)
    run("nnet3-chain-train2", *OPTIONS, "many.raw", "den", source, "x.raw")
    before, after = (Nnet.read(name).components for name in ("many.raw", "x.raw"))
    for name in LANGUAGES:
        assert not np.array_equal(before[name].linear_params, after[name].linear_params)


def test_mistakes_of_languages():
    files = "den", "ark:lang.egs", "x.raw"
    told = run("nnet3-chain-train2", "0.raw", *files, code=1)
    assert "eg0?lang=en: the example wants the output 'output-en', which the network lacks" in told
    os.remove("den/fr.den.fst")
    told = run("nnet3-chain-train2", "many.raw", *files, code=1)
    assert "eg1?lang=fr: den/fr.den.fst: No such file" in told and not os.path.exists("x.raw")
    with TableWriter("ark:odd.egs", "chain_example") as writer:
        for key, example in read_table("ark:plain.egs", "chain_example"):
            writer.write(f"{key}?lang=../en", example)
    told = run("nnet3-chain-combine2", "den", "many.raw", "ark:odd.egs", "x.raw", code=1)
    assert "'output-../en'" in told


def outputs(nnet: Nnet, features: np.ndarray) -> np.ndarray:
    h, o = nnet.components["h"], nnet.components["o"]
    hidden = np.tanh(features @ h.linear_params.T + h.bias_params)
    return hidden @ o.linear_params.T + o.bias_params


def test_posteriors_of_features():
    post = "nnet3-chain-compute-post", "--leaky-hmm-coefficient=0.05"
    files = "one.raw", "den/default.den.fst", "ark:feats.ark"
    told = run(*post, *files, "ark:post.ark")
    assert "Overall log-prob per (output) frame was" in told and "over 17 frames." in told
    nnet, features = Nnet.read("one.raw"), dict(read_table("ark:feats.ark", "matrix"))
    graph = DenominatorGraph.of_fst(open_fst("den/default.den.fst"), 3)
    found = dict(read_table("ark:post.ark", "matrix"))
    for key, rows in features.items():
        np.testing.assert_allclose(found[key].sum(axis=1), 1, rtol=1e-5)
        every = denominator(graph, outputs(nnet, rows), 1, 0.05)
        np.testing.assert_allclose(found[key], every.posterior, rtol=1e-4)
    phones = np.array([[1, 0, 1], [0, 1, 0]], np.float32)
    writer = Writer()
    writer.write_matrix(phones)
    writer.save("phones.mat")
    run(*post, "--transform-mat=phones.mat", *files, "ark:phones.ark")
    for key, rows in read_table("ark:phones.ark", "matrix"):
        np.testing.assert_allclose(rows, found[key] @ phones.T, rtol=1e-5)
    writer = Writer()
    writer.write_matrix(phones[:, :2])
    writer.save("phones.mat")
    told = run(*post, "--transform-mat=phones.mat", *files, "ark:x.ark", code=1)
    assert "phones.mat: 2 columns for 3 pdfs" in told


def test_posteriors_in_examples():
    add = "nnet3-chain-add-post-to-egs", "--leaky-hmm-coefficient=0.1"
    files = "one.raw", "den/default.den.fst", "ark:plain.egs"
    run(*add, *files, "ark:raw.egs")
    run(*add, "--type=den", "--clip-threshold=0.2", *files, "ark:den.egs")
    nnet = Nnet.read("one.raw")
    graph = DenominatorGraph.of_fst(open_fst("den/default.den.fst"), 3)
    tables = [read_table(f"ark:{name}.egs", "chain_example") for name in ("plain", "raw", "den")]
    for (key, plain), (_, raw), (_, den) in zip(*tables, strict=True):
        logs = outputs(nnet, np.asarray(plain.inputs[0].features))
        every = np.array(denominator(graph, logs, 1, 0.1).posterior)
        every[every < 0.2] = 0
        for example, rows in ((raw, np.exp(logs)), (den, every)):
            added = example.inputs[-1]
            assert added.name == "__LWF-posteriors", key
            assert added.indexes[:, 1].tolist() == [0, 3, 6, 9]
            np.testing.assert_allclose(np.asarray(added.features), rows, rtol=1e-4)
    run("nnet3-chain-merge-egs", "--minibatch-size=4", "ark:den.egs", "ark:merged.egs")
    lwf = "nnet3-chain-train", *OPTIONS, "--lwf-scale=0.5"
    run(*lwf, "one.raw", "den/default.den.fst", "ark:merged.egs", "x.raw")
    told = run(*add, "--type=num", *files, "ark:x.egs", code=1)
    assert "--type=num is neither raw nor den" in told
    told = run(*add, *files[:2], "ark:merged.egs", "ark:x.egs", code=1)
    assert "before these are merged" in told
