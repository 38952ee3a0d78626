"""`opscope score`: equal bytes for any number of shards, going on, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import wave
from pathlib import Path

import numpy as np
import pytest

import opscope
from kaldi_models import call_main
from opscope import cntk
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import write_model
from opscope.cntk.network.dialect import parameter_arrays, to_desc
from opscope.cntk.network.initialize import initialize
from opscope.framework.training.folder_lock import folder_lock
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.network.nnet import Nnet
from opscope.scale.score.folder import ScoreFolder
from opscope.scale.score.options import ScoreOptions
from opscope.scale.score.progress import Progress
from opscope.scale.score.scorers import open_scorer
from score_runs import environment, features, killed_runs, run, write_nnet3, write_table

pytestmark = pytest.mark.skipif(os.name != "posix", reason="jobs are shell scripts")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Runs in a folder of its own, with jobs that import opscope from this tree."""
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    opscope.set_threads(1)  # sums of products depend on it; shards have one thread each
    yield tmp_path
    opscope.set_threads(None)


@pytest.fixture
def corpus(here):
    """A model and 40 utterances, as ark and scp."""
    write_nnet3(here / "final.raw")
    write_table("ark,scp:feats.ark,feats.scp", features(40))
    return here


def score(*words):
    """Run it in this process: (exit status, what it told)."""
    code, _, told = call_main("score", *words)
    return code, told


def scored(*words):
    code, told = score(*words)
    assert code == 0, told
    return told


def refused(*words):
    code, told = score(*words)
    assert code, told
    assert told.count("error: ") == 1, told
    return told


# Equal bytes


def test_shards_do_not_change_a_byte_and_are_those_of_nnet3_compute(corpus):
    assert call_main("nnet3-compute", "final.raw", "scp:feats.scp", "ark,scp:k.ark,k.scp")[0] == 0
    for shards, source in ((1, "scp:feats.scp"), (2, "feats.ark")):
        scored("final.raw", source, "ark,scp:o.ark,o.scp", "--shards", shards)
        assert Path("o.ark").read_bytes() == Path("k.ark").read_bytes()
        listed = Path("k.scp").read_text().replace("k.ark", "o.ark")
        assert Path("o.scp").read_text() == listed
        assert sorted(os.listdir("o.ark.score")) == ["log", "manifest.json", "run.lock"]
        shutil.rmtree("o.ark.score")


def test_text_scripts_and_standard_output(corpus):
    assert call_main("nnet3-compute", "final.raw", "scp:feats.scp", "ark,t:k.txt")[0] == 0
    scored("final.raw", "feats.scp", "ark,t:o.txt")
    assert Path("o.txt").read_bytes() == Path("k.txt").read_bytes()
    words = ("score", "final.raw", "feats.scp", "ark,t:-", "--work", "w")
    code, out, told = call_main(*words)
    assert code == 0 and out == Path("k.txt").read_bytes(), told
    wanted = dict(read_table("ark:k.txt", "matrix"))
    Path("to.scp").write_text("".join(f"{key} one/{key}.mat\n" for key in wanted))
    os.mkdir("one")
    scored("final.raw", "feats.scp", "scp,t:to.scp")
    for key, value in read_table("scp:to.scp", "matrix"):
        np.testing.assert_array_equal(value, wanted[key])


def test_a_folder_gets_shards_and_one_list(corpus):
    scored("final.raw", "feats.scp", "ark:one.ark")
    told = scored("final.raw", "feats.scp", "out", "--shards", 3)
    assert "40 utterances in 3 shards" in told and "Done 40 utterances, failed for 0" in told
    names = [name for name in os.listdir("out") if name.startswith("scores")]
    assert sorted(names) == ["scores.1.ark", "scores.2.ark", "scores.3.ark", "scores.scp"]
    joined = b"".join(Path(f"out/scores.{n}.ark").read_bytes() for n in (1, 2, 3))
    assert joined == Path("one.ark").read_bytes()
    wanted = dict(read_table("ark:one.ark", "matrix"))
    found = dict(read_table("scp:out/scores.scp", "matrix"))
    assert list(found) == list(wanted)
    assert all(np.array_equal(found[key], wanted[key]) for key in wanted)
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert sum(shard["utterances"] for shard in manifest["shards"]) == 40
    assert all(len(shard["sha256"]) == 64 and shard["bytes"] for shard in manifest["shards"])


def test_nnet3_options_are_those_of_nnet3_compute(here):
    text = "input-node name=ivector dim=3\n"
    text += "input-node name=input dim=6\ncomponent name=a type=AffineComponent input-dim=9"
    text += " output-dim=4\ncomponent-node name=a component=a input=Append(input,"
    text += "ReplaceIndex(ivector,t,0))\noutput-node name=output input=a\n"
    Nnet.from_config_text(text, 2).write("iv.raw")
    values = features(12)
    write_table("ark:feats.ark", values)
    ivectors = {key: np.full(3, len(value), np.float32) for key, value in values.items()}
    del ivectors["utt07"]
    write_table("ark,scp:iv.ark,iv.scp", ivectors, "vector")
    options = ("--ivectors=scp:iv.scp", "--acoustic-scale=0.1", "--minibatch-size=1")
    code = call_main("nnet3-compute", *options, "--apply-exp", "iv.raw", "ark:feats.ark", "ark:k")
    assert code[0] == 0
    told = scored("iv.raw", "feats.ark", "ark:o", *options, "--apply-exp", "--shards", 2)
    assert Path("o").read_bytes() == Path("k").read_bytes()
    assert "utt07: there is no iVector; it has no score" in told
    assert "Done 11 utterances, failed for 1" in told


def test_models_of_cntk(here):
    network = cntk.build_network("""{
        x = Input {6}
        W = ParameterTensor {4:6}
        h = Tanh (W * x + PastValue (4, h, defaultHiddenActivation = 0), tag = 'output')
    }""")
    network.validate()
    initialize(network)
    net = cntk.CntkNet(network)
    net.save("tagger.dnn")
    values = features(9)
    write_table("ark:feats.ark", values)
    for shards in (1, 2):
        words = ("--rows-per-batch", 500, "--shards", shards)
        scored("tagger.dnn", "feats.ark", f"ark:o{shards}.ark", *words)
    assert Path("o1.ark").read_bytes() == Path("o2.ark").read_bytes()
    for key, found in read_table("ark:o2.ark", "matrix"):
        np.testing.assert_allclose(found, net.eval({"x": [values[key]]})["h"][0], atol=1e-5)
    told = refused("tagger.dnn", "feats.ark", "ark:o.ark", "--acoustic-scale", 2)
    assert "--acoustic-scale has no meaning for a model of CNTK's" in told
    assert "--output z: tagger.dnn has none" in refused(
        "tagger.dnn", "feats.ark", "ark:o.ark", "--output", "z"
    )


def sequence_net(path, columns=6):
    """Saves a net over sequences: scores of each row, and a vector for each sequence."""
    b = opscope.NetBuilder("net")
    h = b.fc(b.input("x", [-1, columns], levels=1), size=5, activation="tanh")
    b.softmax(h, name="rows")
    b.sequence_pool(h, pool_type="mean", name="pooled")
    scope = opscope.Scope()
    b.initialize(scope, opscope.OpContext(seed=3))
    opscope.save(b, scope, path)


def test_saved_nets(here):
    sequence_net("net.pb")
    values = features(9)
    write_table("ark,scp:feats.ark,feats.scp", values)
    net = opscope.load("net.pb")
    for output, kind in (("rows", "matrix"), ("pooled", "vector")):
        for shards in (1, 2):
            words = ("--output", output, "--rows-per-batch", 600, "--shards", shards)
            scored("net.pb", "feats.scp", f"ark:{output}{shards}", *words)
        assert Path(f"{output}1").read_bytes() == Path(f"{output}2").read_bytes()
        for key, found in read_table(f"ark:{output}2", kind):
            fed = {"x": opscope.Sequences.from_list([values[key]])}
            wanted = net.predict(fed, output)[output]
            wanted = wanted.data if kind == "matrix" else wanted[0]
            np.testing.assert_allclose(found, wanted, atol=1e-6)
    told = refused("net.pb", "feats.scp", "ark:o.ark", "--output", "row")
    assert "--output row: net.pb has none (did you mean rows?)" in told


def test_saved_nets_over_rows_and_models_of_cntk_as_nets(here):
    """In this process: how each kind of model scores a group."""
    values = features(3)
    b = opscope.NetBuilder("rows")
    b.fc(b.input("x", [-1, 6]), size=4, name="h")
    scope = opscope.Scope()
    b.initialize(scope, opscope.OpContext(seed=3))
    opscope.save(b, scope, "rows.pb")
    scorer = open_scorer("rows.pb", ScoreOptions())
    assert scorer.input_dim == 6
    found = dict(scorer.score(list(values.items())))
    for key, value in values.items():
        wanted = next(iter(opscope.load("rows.pb").predict({"x": value}).values()))
        np.testing.assert_allclose(found[key], wanted, atol=1e-6)
    text = "{ x = Input {6} ; W = ParameterTensor {4:6} ; z = Tanh (W * x, tag = 'output') }"
    network = cntk.build_network(text)
    network.validate()
    initialize(network)
    scope = opscope.Scope()
    for name, array in parameter_arrays(network).items():
        scope.var(name).set(array)
    opscope.save(to_desc(network), scope, "tanh.pb")
    scorer = open_scorer("tanh.pb", ScoreOptions())
    found = dict(scorer.score(list(values.items())))
    weights = cntk.CntkNet(network).get("W")
    for key, value in values.items():
        np.testing.assert_allclose(found[key], np.tanh(value @ weights.T), atol=1e-5)


def test_a_network_of_nnet3_that_was_saved_as_a_net(corpus):
    opscope.save_nnet(Nnet.read("final.raw"), "final.pb")
    scored("final.raw", "feats.scp", "ark:a.ark")
    scored("final.pb", "feats.scp", "ark:b.ark", "--shards", 2)
    assert Path("a.ark").read_bytes() == Path("b.ark").read_bytes()


def write_wave(path, samples, channels=1):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.asarray(samples, "<i2").tobytes())


def test_samples_of_wav_files_for_nets_that_take_them(here):
    sequence_net("net.pb", columns=1)
    rng = np.random.default_rng(1)
    samples = {f"w{n}": rng.integers(-3000, 3000, 40000 + n).astype(np.int16) for n in range(3)}
    for key, value in samples.items():
        write_wave(f"{key}.wav", value)
    Path("wav.scp").write_text("".join(f"{key} {key}.wav\n" for key in samples))
    scored("net.pb", "wav.scp", "ark:o.ark", "--output", "pooled", "--shards", 2)
    net = opscope.load("net.pb")
    for key, found in read_table("ark:o.ark", "vector"):
        rows = samples[key].astype(np.float32)[:, None]
        fed = {"x": opscope.Sequences.from_list([rows])}
        np.testing.assert_allclose(found, net.predict(fed, "pooled")["pooled"][0], atol=1e-5)
    write_wave("w1.wav", samples["w1"][:100], channels=2)
    told = refused("net.pb", "wav.scp", "ark:p.ark", "--output", "pooled")
    assert "wav.scp:2: w1: " in told and "16 bits and 2 channels" in told
    write_wave("w1.wav", samples["w1"][:100])
    Path("w1.wav").write_bytes(Path("w1.wav").read_bytes()[:-20])
    told = refused("net.pb", "wav.scp", "ark:p.ark", "--output", "pooled")
    assert "the WAV file is cut off: 90 samples are there, 100 are wanted" in told


def test_progress_counts_all_shards_in_tenths(here):
    folder = ScoreFolder("out")
    folder.make()
    lines: list[str] = []
    progress = Progress(folder, [10, 20, 10], {2, 3}, lines.append)
    progress.show()
    for number, done in ((2, "7"), (3, "x"), (3, "4")):
        Path(folder.part(number, "progress")).write_text(done)
        progress.show()
        progress.show()
    assert lines == ["40%: 17 of 40 utterances", "50%: 21 of 40 utterances"]


# Going on


def test_a_second_run_does_nothing_and_a_damaged_output_is_made_again(corpus):
    words = ("final.raw", "feats.scp", "ark:o.ark")
    scored(*words)
    before = Path("o.ark").read_bytes()
    assert "o.ark is there already" in scored(*words)
    Path("o.ark").write_bytes(before[:-1])
    assert "40 utterances in 1 shard;" in scored(*words)
    assert Path("o.ark").read_bytes() == before


def test_finished_shards_are_not_computed_again(corpus):
    words = ("final.raw", "feats.scp", "out", "--shards", 4, "--minibatch-size", 4)
    scored(*words)
    whole = {n: Path(f"out/scores.{n}.ark").read_bytes() for n in range(1, 5)}
    starts = {n: Path(f"out/log/score.{n}.log").stat().st_mtime_ns for n in whole}
    Path("out/scores.2.ark").write_bytes(whole[2][:-1])
    Path("out/parts/3.done").unlink()
    assert "4 shards, 2 are finished" in scored(*words)
    assert {n: Path(f"out/scores.{n}.ark").read_bytes() for n in whole} == whole
    again = {n: Path(f"out/log/score.{n}.log").stat().st_mtime_ns for n in whole}
    assert [n for n in whole if again[n] != starts[n]] == [2, 3]
    assert "finished" not in scored(*words)  # all of them are: there is nothing to run


@pytest.mark.parametrize(
    ("change", "words", "told"),
    [
        (lambda: write_nnet3(Path("final.raw"), 2), (), "the model has changed (SHA-256 "),
        (
            lambda: write_table("ark,scp:feats.ark,feats.scp", features(39)),
            (),
            "the list of utterances has changed (40 then, 39 now)",
        ),
        (lambda: None, ("--acoustic-scale", 0.5), "--acoustic-scale was 1.0, is 0.5"),
        (lambda: None, ("--shards", 3), "--shards was 1, is 3"),
    ],
    ids=["model", "list", "option", "shards"],
)
def test_something_else_in_the_same_folder(corpus, change, words, told):
    scored("final.raw", "feats.scp", "out")
    before = Path("out/scores.1.ark").read_bytes()
    change()
    found = refused("final.raw", "feats.scp", "out", *words)
    assert told in found and "Remove it, or choose another folder" in found
    assert Path("out/scores.1.ark").read_bytes() == before


def test_two_runs_in_one_folder(corpus):
    os.mkdir("out")
    with folder_lock("out"):
        assert "out: another run is under way there" in refused("final.raw", "feats.scp", "out")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
def test_killed_runs_give_the_same_bytes(corpus):
    write_table("ark,scp:feats.ark,feats.scp", features(200))
    scored("final.raw", "feats.scp", "ark,scp:one.ark,one.scp")
    work = corpus / "o.ark.score"
    words = ("final.raw", "feats.scp", "ark,scp:o.ark,o.scp", "--shards=3", "--retries=9")
    counts = killed_runs(corpus, (*words, f"--work={work}"), work, 4, seed=5, within=1.0)
    assert counts["main"] + counts["worker"] >= 1
    assert Path("o.ark").read_bytes() == Path("one.ark").read_bytes()
    assert Path("o.scp").read_text() == Path("one.scp").read_text().replace("one.ark", "o.ark")
    assert not [name for name in os.listdir() if name.endswith(".tmp")]


# What is refused


def test_a_wrong_utterance_is_named_with_its_shard(corpus):
    values = features(40)
    values["utt37"] = np.ones((50, 5), np.float32)
    write_table("ark,scp:feats.ark,feats.scp", values)
    wanted = "utt37: the input wants 6 columns, you gave 5 (50 rows)"
    told = refused("final.raw", "feats.scp", "out", "--shards", 3)
    assert f"error: shard 3 of 3: feats.scp:38: {wanted}" in told and not os.path.exists("out")
    told = refused("final.raw", "feats.ark", "out", "--shards", 3)
    assert f"error: shard 3 of 3: feats.ark: {wanted}" in told


def test_a_wrong_utterance_that_only_its_worker_can_see(corpus, monkeypatch):
    monkeypatch.setenv("OPSCOPE_PIPES", "files")
    write_table("ark:bad.ark", {"x": np.ones((50, 5), np.float32)})
    lines = Path("feats.scp").read_text().splitlines()
    lines[37] = "utt37 tail -c +3 bad.ark |"
    Path("feats.scp").write_text("\n".join(lines) + "\n")
    told = refused("final.raw", "feats.scp", "out", "--shards", 2)
    wanted = "utt37: the input wants 6 columns, you gave 5 (50 rows)"
    assert f"error: shard 2 of 2: feats.scp:38: {wanted}" in told
    assert not os.path.exists("out/scores.2.ark") and not os.path.exists("out/scores.scp")
    assert not Path("out/jobs/shard.2.2.sh").exists()  # it is not tried again
    lines[37] = "utt37 feats.ark:6"
    Path("feats.scp").write_text("\n".join(lines) + "\n")
    assert "the list of utterances has changed" in refused(
        "final.raw", "feats.scp", "out", "--shards", 2
    )


def test_a_shard_that_does_not_come_back(corpus, monkeypatch):
    """It is ended with all that it has started."""
    monkeypatch.setenv("OPSCOPE_PIPES", "files")
    Path("waits.scp").write_text("a echo $$ > waits; exec sleep 97 |\n")
    told = refused("final.raw", "waits.scp", "out", "--job-minutes", 0.07)
    assert "shard.1: job" in told and "did not come back within 0.07 minutes" in told
    assert not os.path.exists("out/scores.scp") and not os.path.exists("out/scores.1.ark")
    if os.path.exists("waits"):  # unless the machine was too busy to come so far
        with pytest.raises(ProcessLookupError):
            for _ in range(100):
                os.kill(int(Path("waits").read_text()), 0)
                time.sleep(0.05)


@pytest.mark.parametrize("dims", [["N", 5], [1, "T", 5]])
def test_models_of_onnx(here, dims):
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(5, 300)).astype(np.float32)
    graph = Graph("g")
    x = graph.input("x", np.float32, dims)
    y = graph.node("MatMul", [x, graph.constant(weight, "w")], "y")
    graph.output(y, np.float32, [*dims[:-1], 300])
    write_model("net.onnx", graph, external=True)
    utterances = {f"u{n}": rng.normal(size=(3 + n, 5)).astype(np.float32) for n in range(5)}
    with TableWriter("ark,scp:x.ark,x.scp", "matrix") as table:
        for key, value in utterances.items():
            table.write(key, value)
    scored("net.onnx", "x.scp", "ark:one.ark")
    scored("net.onnx", "x.scp", "ark:three.ark", "--shards", 3)
    assert Path("one.ark").read_bytes() == Path("three.ark").read_bytes()
    for key, found in read_table("ark:one.ark", "matrix"):
        np.testing.assert_allclose(found, utterances[key] @ weight, atol=1e-5)
    assert "has no meaning" in refused("net.onnx", "x.scp", "ark:o.ark", "--rows-per-batch", 9)
    Path(next(Path().glob("net-*.data"))).write_bytes(b"other")
    assert "net-" in refused("net.onnx", "x.scp", "ark:o.ark")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("none.raw", "feats.scp", "out"), "none.raw: No such file or directory; want an"),
        (("net.onnx", "feats.scp", "out"), "net.onnx: No such file or directory; want an"),
        (
            ("feats.ark", "feats.scp", "out"),
            "no model that can be scored (Kaldi archive); want an nnet",
        ),
        (("final.raw", "none.scp", "out"), "none.scp: No such file"),
        (("final.raw", "none.ark", "out"), "none.ark: No such file"),
        (("final.raw", "ark:-", "out"), "'ark:-' can be read only once"),
        (("final.raw", "empty.scp", "out"), "empty.scp: there is no utterance to score"),
        (("final.raw", "lost.scp", "out"), "lost.scp:1: a: nowhere.ark: No such file"),
        (("final.raw", "wav.scp", "out"), "wav.scp:1: a: this is a WAV file, and the model takes"),
        (("final.raw", "feats.scp", "out.ark"), "out.ark: for one archive write ark:out.ark"),
        (("final.raw", "feats.scp", "ark:-"), "name a folder for shards with --work"),
        (("final.raw", "feats.scp", "ark:no/o.ark"), "no/o.ark: there is no folder /"),
        (("final.raw", "feats.scp", "ark:feats.ark"), "cannot write feats.ark: feats.ark is read"),
        (("final.raw", "feats.scp", "ark,scp:o,feats.scp"), "cannot write feats.scp: feats.scp is"),
        (("final.raw", "feats.scp", "out", "--output=z"), "--output has no meaning for an nnet3"),
        (("final.raw", "feats.scp", "out", "--threads=0"), "threads is 0; it must be at least 1"),
        (("final.raw", "feats.scp", "out", "--on=slrum"), "--on=slrum: no job runner 'slrum' (did"),
        (("final.raw", "feats.scp", "out", "--frames-per-chunk=0"), "frames_per_chunk is 0"),
    ],
)
def test_mistakes_are_told_before_anything_runs(corpus, words, told):
    Path("empty.scp").write_text("")
    Path("lost.scp").write_text("a nowhere.ark:5\n")
    write_wave("a.wav", [1, 2, 3])
    Path("wav.scp").write_text("a a.wav\n")
    assert told in refused(*words)
    assert not os.path.exists("out/scores.1.ark")


def test_damaged_entries_are_passed_over_where_the_list_says_so(corpus):
    data = Path("feats.ark").read_bytes()
    Path("cut.ark").write_bytes(data[:-10])
    text = Path("feats.scp").read_text().replace("feats.ark", "cut.ark") + "none nowhere.ark:4\n"
    Path("cut.scp").write_text(text)
    told = scored("final.raw", "scp,p:cut.scp", "ark:o.ark", "--shards", 2)
    assert (
        "Done 39 utterances, failed for 1" in told and "utt39: cut.scp:40: utt39: cut.ark" in told
    )
    told = refused("final.raw", "scp:cut.scp", "ark:p.ark")
    assert "none: nowhere.ark" in told


def test_files_that_a_list_names_lie_below_the_root(corpus, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    write_table(f"ark,scp:{outside}/f.ark,feats.scp", features(4))
    told = run(corpus, f"--root={corpus}", "final.raw", "feats.scp", "ark:o.ark")
    assert told[0] == 1 and "feats.scp:1: utt00: " in told[1] and "lies outside of" in told[1]
    write_table("ark,scp:f.ark,feats.scp", features(4))
    code, told = run(corpus, f"--root={corpus}", "final.raw", "feats.scp", "ark:o.ark")
    assert code == 0, told


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="wants a limit of file sizes")
def test_no_place_for_a_shard_is_told_and_nothing_is_half_written(corpus):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
    try:
        told = refused("final.raw", "feats.scp", "out", "--shards", 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    wanted = f"error: shard 1 of 2: cannot write {corpus}/out/scores.1.ark: File too large"
    assert wanted in told and "run again" not in told
    assert not [name for name in os.listdir("out") if name.startswith(("scores", "."))]
    scored("final.raw", "feats.scp", "out", "--shards", 2)
    assert len(dict(read_table("scp:out/scores.scp", "matrix"))) == 40


@pytest.mark.parametrize("where", ["dask", "ray"])
def test_shards_on_dask_and_ray(corpus, where):
    pytest.importorskip({"dask": "distributed", "ray": "ray"}[where], reason="not installed")
    scored("final.raw", "feats.scp", "ark:one.ark")
    scored("final.raw", "feats.scp", "ark:o.ark", "--shards=2", f"--on={where} --max-jobs-run 2")
    assert Path("o.ark").read_bytes() == Path("one.ark").read_bytes()
