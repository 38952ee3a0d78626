"""`opscope edit`, dry runs of programs, acoustic models, and outputs of edited networks of CNTK."""

from __future__ import annotations

import os

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from edit_nets import model, network, nnet, saved
from kaldi_models import one_state_model
from opscope.cntk import CntkNet
from opscope.cntk.models.v1 import read_model
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.python_api.cli.main import main
from reference_folders import DATA


def run(*words: object):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a network of each kind, the current one."""
    monkeypatch.chdir(tmp_path)
    nnet().write("a.raw")
    model(tmp_path / "a.dnn")
    saved(tmp_path / "a.pb")
    net = opscope.edit(nnet()).cut(outputs="output").net
    acoustic = AmNnetSimple(net, one_state_model(5).encode(), binary=False)
    acoustic.set_context()
    acoustic.set_priors(np.full(5, 0.2))
    acoustic.write("a.mdl", binary=False)
    return tmp_path


def test_plain_options(folder):
    done = run(
        *("edit", "a.raw", "--rename", "r1=relu", "--bypass", "drop", "--output-size", 4),
        *("--output-name", "output", "--low-rank", "a1=3", "--freeze", "a1*", "--rate", "a2=0.5"),
        *("--replace", "relu=TanhComponent", "--out", "b.raw"),
    )
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == "wrote b.raw" and len(done.output.splitlines()) == 8
    net = Nnet.read("b.raw")
    assert net.output_dim("output") == 4 and net.components["a2"].learning_rate_factor == 0.5
    assert [net.components[name].learning_rate for name in ("a1_a", "a1_b")] == [0, 0]
    cut = run("edit", "a.dnn", "--input", "in=L1.y", "--output", "OL.z", "-o", "b.dnn")
    assert cut.exit_code == 0 and sorted(read_model("b.dnn").nodes) == [
        *("OL.W", "OL.b", "OL.t", "OL.z", "in")
    ]
    share = run("edit", "a.pb", "--low-rank", "hidden.w=0.5", "--dropout", "drop=0.3", "-o", "b.pb")
    assert share.exit_code == 0 and "hidden.w to rank" in share.output


def test_nothing_is_written_by_a_dry_run(folder):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for words in (
        ("edit", "a.raw", "--freeze", "*", "--dry-run"),
        ("edit", "a.dnn", "--output-size", "5", "--dry-run", "--out", "c.dnn"),
        ("edit", "a.pb", "--low-rank", "hidden.w=2", "--dry-run"),
        ("nnet3-copy", "--dry-run=true", "--edits=remove-output-nodes name=*-x", "a.raw", "c.raw"),
        ("nnet3-copy", "--dry-run", "--scale=0.5", "a.raw", "c.raw"),
        ("nnet3-am-copy", "--dry-run", "--edits=set-learning-rate learning-rate=1", "a.mdl", "c"),
    ):
        done = run(*words)
        assert done.exit_code == 0, done.output
        last = done.stdout.splitlines()[-1]
        assert last.endswith(" changed") and not last.startswith("0 removed, 0 added, 0 changed")
    (folder / "more.config").write_text("output-node name=more input=r1\n")
    done = run("nnet3-init", "--dry-run", "a.raw", "more.config", "c.raw")
    assert done.stdout == "+ more = output(r1) [?, 7]\n0 removed, 1 added, 0 changed\n"
    (folder / "more.config").unlink()
    same = run("nnet3-copy", "--dry-run", "a.raw", "c.raw")
    assert same.stdout == "no difference\n"
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_the_text_of_a_difference(folder):
    done = run("nnet3-copy", "--dry-run", "--edits=reduce-rank name=a1 rank=2", "a.raw", "c.raw")
    old = nnet().components["a1"].linear_params
    new = opscope.edit("a.raw").low_rank("a1", 2, factors=False).net.components["a1"].linear_params
    away = float(np.abs(new.astype(np.float64) - old).max())
    assert done.stdout.splitlines() == [
        "~ a1/linear_params",
        f"    {np.count_nonzero(new != old)} of 112 numbers differ, by at most {away:.4g}",
        "0 removed, 0 added, 1 changed",
    ]


def test_a_dry_run_of_cntks_edits(folder):
    (folder / "e.mel").write_text(
        'm = LoadModel("a.dnn")\nRename(L1.y, h)\nSaveModel(m, "b.dnn")\n'
        'SetProperty(h, output, true)\nSaveModel(m, "c.dnn")\n'
    )
    (folder / "f.mel").write_text('m = LoadModel("c.dnn")\nRemove(ce)\nSaveModel(m, "d.dnn")\n')
    text = "command = E:F\nE = [ action = edit ; editPath = e.mel ]\n"
    (folder / "e.cntk").write_text(text + "F = [ action = edit ; editPath = f.mel ]\n")
    done = run("cntk", "configFile=e.cntk", "--dry-run")
    assert done.exit_code == 0, done.output
    b, c, d = (done.stdout.split(f"{name}.dnn:\n")[1] for name in "bcd")
    assert b.startswith("- L1.y = Tanh(L1.z) [?, 8]\n+ h = Tanh(L1.z) [?, 8]\n~ OL.t\n")
    assert "cntk.output" in c and d.startswith("- ce = CrossEntropyWithSoftmax(labels, OL.z) [1]")
    assert not [name for name in "bcd" if (folder / f"{name}.dnn").exists()]
    assert run("cntk", "configFile=e.cntk").exit_code == 0
    assert [name for name in "bcd" if (folder / f"{name}.dnn").exists()] == ["b", "c", "d"]
    (folder / "t.cntk").write_text("command = T\nT = [ action = train ]\n")
    done = run("cntk", "configFile=t.cntk", "--dry-run")
    assert done.exit_code == 1 and "T: the action 'train' is no edit" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.raw"], "--out OUT is missing"),
        (["a.raw", "--dry-run"], "no edit is given"),
        (["a.raw", "--rename", "a1", "--dry-run"], "--rename a1: want A=B"),
        (["a.raw", "--rate", "a1=x", "--dry-run"], "'x' is no number"),
        (["a.raw", "--low-rank", "a1=2.5", "--dry-run"], "a whole number, or a share below 1"),
        (["a.raw", "--output-name", "output", "--dry-run"], "--output-name is for --output-size"),
        (["a.raw", "--freeze", "b*", "-o", "c.raw"], "no component is called 'b*'"),
        (["a.raw", "--freeze", "a*", "-o", "a.raw"], "this is the file that was read"),
        (["a.raw", "--edits", "foo", "-o", "c.raw"], "--edits:1: 'foo' is no edit directive"),
        (["none.raw", "--freeze", "a*", "-o", "c.raw"], "No such file"),
        (["a.dnn", "--mel", "bad.mel", "-o", "c.dnn"], "bad.mel:2:1: no node is called"),
    ],
)
def test_what_is_wrong_is_told(words, message, folder):
    (folder / "bad.mel").write_text("Rename(L1.y, h)\nRename(L2.y, h)\n")
    done = run("edit", *words)
    assert done.exit_code in (1, 2) and message in done.output, done.output
    assert not list(folder.glob("c.*"))


def test_two_syntaxes_from_files(folder):
    (folder / "e.txt").write_text("# more\nrename-node old-name=r1 new-name=relu\n")
    (folder / "e.mel").write_text("Rename(a*, b*)\nSetProperty(a1, needsGradient, false)\n")
    done = run("edit", "a.raw", "--edits-config", "e.txt", "--mel", "e.mel", "-o", "b.raw")
    assert done.exit_code == 0, done.output
    net = Nnet.read("b.raw")
    assert net.has_node("relu") and net.has_node("b1")
    assert net.components["a1"].learning_rate_factor == 0
    assert run("edit", "a.raw", "--edits", "remove-orphans", "--overwrite").exit_code == 0


def test_acoustic_models_as_kaldis_program_writes_them(folder):
    edits = "rename-node old-name=r1 new-name=relu; apply-svd name=a1 bottleneck-dim=2"
    assert (
        run("nnet3-am-copy", "--binary=false", f"--edits={edits}", "a.mdl", "b.mdl").exit_code == 0
    )
    opscope.edit("a.mdl").rename("r1", "relu").low_rank("a1", 2).save("c.mdl")
    assert (folder / "b.mdl").read_bytes() == (folder / "c.mdl").read_bytes()
    done = run("edit", "a.mdl", "--output-size", 3, "-o", "d.mdl")
    assert (
        "the output is 3 wide, not 5: the transition model still belongs to the old one, and 5"
        in (done.stderr)
    )
    made = AmNnetSimple.read("d.mdl")
    assert made.priors.size == 0 and made.nnet.output_dim("output") == 3


def _run_cntk(net, outputs, seed=0):
    rng = np.random.default_rng(seed)
    feed = {
        node.name: rng.normal(size=(5, *reversed(node.shape))).astype("f")
        for node in net.nodes.values()
        if node.is_input
    }
    return CntkNet(net).eval(feed, outputs)


def test_networks_of_cntk_compute_the_same(folder):
    want = _run_cntk(network(), ["OL.z"])["OL.z"]
    same = opscope.edit(network()).low_rank(["L1.W", "OL.W"], 3, factors=True)
    assert "2 parameters" in same.done[0]
    for change in (
        lambda e: e.low_rank("L1.W", 6).low_rank("OL.W", 3),
        lambda e: e.rename("L1.*", "own.*").copy("own.*", "more.*"),
        lambda e: e.insert("i", "Times", after="L1.y", inputs=[np.eye(8), "L1.y"]),
    ):
        edited = change(opscope.edit("a.dnn"))
        edited.save("b.dnn")
        got = _run_cntk(read_model("b.dnn"), ["OL.z"])["OL.z"]
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_a_recurrent_network_of_cntk_at_full_rank(tmp_path):
    path = DATA / "cntk" / "slu.forward.cmf"
    if not path.exists():
        pytest.skip("shared/data/cntk/slu.forward.cmf is not there")
    net = read_model(path)
    (output,) = net.groups["output"][:1]
    matrices = [
        node.name
        for node in net.nodes.values()
        if node.is_parameter and node.value.ndim == 2 and min(node.value.shape) > 1
    ]
    small = min(matrices, key=lambda name: net.find(name).value.size)
    editor = opscope.edit(path).low_rank(small, min(net.find(small).value.shape))
    editor.save(tmp_path / "b.dnn")
    rng = np.random.default_rng(0)
    feed = {
        node.name: [np.eye(node.shape[0], dtype="f")[rng.integers(0, node.shape[0], 6)]]
        for node in net.nodes.values()
        if node.is_input
    }
    runs = [CntkNet(one).eval(feed, [output.name]) for one in (net, read_model(tmp_path / "b.dnn"))]
    first, second = (np.concatenate(found[output.name]) for found in runs)
    np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-4)
    assert os.path.getsize(tmp_path / "b.dnn") > 0
