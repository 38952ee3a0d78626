"""Edits through Python: equal to those by directives and MEL, to NumPy, and to nothing at all."""

from __future__ import annotations

import os

import numpy as np
import pytest

import opscope
from edit_nets import model, network, nnet, saved
from kaldi_data import need
from opscope import FormatError, OpscopeError, SaveError, ShapeError, VariableError
from opscope.cntk.models.v1 import format_model, read_model
from opscope.framework.runtime.initialize import initialize
from opscope.nnet3.network.edits import DIRECTIVES, apply_edits, parse_edits
from opscope.nnet3.network.nnet import Nnet
from reference_folders import DATA

RNG = np.random.default_rng(7)


def _bytes(net, tmp_path, name="n.raw"):
    net.write(tmp_path / name)
    return (tmp_path / name).read_bytes()


PAIRS = {
    "rename-node old-name=a1 new-name=b": lambda e: e.rename("a1", "b"),
    "set-learning-rate name=a* learning-rate=0.25": lambda e: e.rates("a*", rate=0.25),
    "set-learning-rate-factor name=a1 learning-rate-factor=0.5": lambda e: e.rates("a1", 0.5),
    "set-dropout-proportion proportion=0.5": lambda e: e.dropout("*", 0.5),
    "convert-to-fixed-affine name=a2": lambda e: e.freeze("a2", fixed=True),
    "remove-output-nodes name=*-x; remove-orphans": lambda e: e.remove_outputs(
        "*-x"
    ).remove_orphans(),
    "reduce-rank name=a1 rank=3": lambda e: e.low_rank("a1", 3, factors=False),
    "apply-svd name=a1 bottleneck-dim=3": lambda e: e.low_rank("a1", 3, shrinkage=1),
    "apply-svd name=a1 energy-threshold=0.8": lambda e: e.low_rank("a1", keep=np.float32(0.8)),
    "set-learning-rate-factor name=a1 learning-rate-factor=0;"
    "set-learning-rate name=a1 learning-rate=1": lambda e: e.freeze("a1"),
}


def test_every_directive_has_its_method() -> None:
    used = {line.first_token for text in PAIRS for line in parse_edits(text)}
    assert used | {"remove-orphan-nodes", "remove-orphan-components"} == DIRECTIVES.keys()


@pytest.mark.parametrize("text", PAIRS)
def test_python_and_directives_give_the_same_bytes(text, tmp_path):
    by_program = nnet()
    done = apply_edits(by_program, parse_edits(text))
    by_python = PAIRS[text](opscope.edit(nnet()))
    by_text = opscope.edit(nnet()).edits(text)
    assert _bytes(by_python.net, tmp_path) == _bytes(by_program, tmp_path)
    assert _bytes(by_text.net, tmp_path) == _bytes(by_program, tmp_path)
    assert by_text.done == done
    assert by_text.difference()


MEL = {
    "Rename(L1.*, M.*)": lambda e: e.rename("L1.*", "M.*"),
    "Remove(ce)": lambda e: e.remove("ce"),
    "SetProperty(L1.W, learningRateMultiplier, 0.5)": lambda e: e.rates("L1.W", 0.5),
    "SetPropertyForSubTree(L1.y, learningRateMultiplier, 0.5)": lambda e: e.rates(
        ["L1.W", "L1.b"], 0.5
    ),
    "SetProperty(OL.W, freezeParameters, true)": lambda e: e.freeze("OL.W"),
    "SetProperty(L1.y, output, true)": lambda e: e.role("L1.y", "output"),
    "SetInput(OL.t, 1, L1.z)": lambda e: e.connect("OL.t", "L1.z", 1),
    "SetInputs(OL.t, OL.W, L1.z)": lambda e: e.connect("OL.t", ["OL.W", "L1.z"]),
    "Copy(L1.*, M.*)": lambda e: e.copy("L1.*", "M.*"),
    "CopySubTree(L1.y, net, M.)": lambda e: e.copy("L1.y", "M.", below=True),
}


@pytest.mark.parametrize("text", MEL)
def test_python_and_mel_give_the_same_bytes(text, tmp_path, monkeypatch):
    from opscope.cntk.mel import Session, parse_mel, run_script

    monkeypatch.chdir(tmp_path)
    model(tmp_path / "a.dnn")
    script = f'net = LoadModel("a.dnn")\n{text}\nSaveModel(net, "mel.dnn")'
    run_script(Session(), parse_mel(script))
    MEL[text](opscope.edit("a.dnn")).save("python.dnn")
    opscope.edit("a.dnn").mel(text).save("both.dnn")
    assert (tmp_path / "python.dnn").read_bytes() == (tmp_path / "mel.dnn").read_bytes()
    assert (tmp_path / "both.dnn").read_bytes() == (tmp_path / "mel.dnn").read_bytes()


def test_each_syntax_on_the_other_kind():
    one = opscope.edit(network()).edits(
        "rename-node old-name=L1.y new-name=h; set-learning-rate-factor name=OL.*"
        " learning-rate-factor=0.5; apply-svd name=L1.W bottleneck-dim=2"
    )
    other = opscope.edit(network()).rename("L1.y", "h").rates("OL.*", 0.5).low_rank("L1.W", 2)
    assert format_model(one.check().net) == format_model(other.check().net)
    assert one.net.find("OL.t").learning_rate == 0
    nets = [
        opscope.edit(nnet()).mel("Rename(a*, b*)\nSetProperty(a1, learningRateMultiplier, 0)").net,
        opscope.edit(nnet()).rename("a*", "b*").rates("a1", 0).net,
    ]
    assert nets[0].config_lines() == nets[1].config_lines()
    assert nets[0].components["a1"].learning_rate_factor == 0
    with pytest.raises(FormatError, match="'set-rate' is not for this kind.*learningRatesPerMB"):
        opscope.edit(network()).edits("set-learning-rate learning-rate=1")
    with pytest.raises(VariableError, match="NDL is for networks of CNTK's, and this is an nnet3"):
        opscope.edit(nnet()).mel("x = Tanh(a1)")
    with pytest.raises(VariableError, match="roles"):
        opscope.edit(nnet()).mel("SetProperty(a1, output, true)")


# Numbers


def test_low_rank_of_nan():
    """No decomposition, and an error that says so."""
    made = nnet()
    made.components["a1"].linear_params[1, 2] = np.nan
    with pytest.raises(OpscopeError, match="NaN or infinities has no singular values"):
        opscope.edit(made).low_rank("a1", 3)


@pytest.mark.parametrize("inputs", [{}, {"w": ("hidden.w",)}, {"x": (), "w": ("hidden.w",)}])
def test_operators_without_inputs(tmp_path, inputs):
    """A damaged net, whose operator lacks what edits look at, is refused as any other."""
    net, scope = opscope.load(saved(tmp_path / "n.pb"), train=True)
    ops = net.op_list.copy()
    at = next(i for i, op in enumerate(ops.ops) if "hidden.w" in op.input_names())
    ops.ops[at] = ops.ops[at].changed(inputs=inputs)
    for change in (lambda e: e.low_rank("hidden.w", 2), lambda e: e.new_output(4, "hidden")):
        with pytest.raises(OpscopeError):
            change(opscope.edit(ops, scope))


def test_low_rank_is_numpys(tmp_path):
    before = nnet().components["a1"]
    parts = opscope.edit(nnet()).low_rank("a1", 3).net.components
    u, s, vt = np.linalg.svd(before.linear_params.astype(np.float64))
    best = (u[:, :3] * s[:3]) @ vt[:3]
    np.testing.assert_allclose(parts["a1_b"].linear_params @ parts["a1_a"].params, best, atol=1e-6)
    value = network().find("L1.W").value
    edited = opscope.edit(network()).low_rank("L1.W", keep=0.7).check().net
    product = edited.find("L1.W_U").value @ edited.find("L1.W_V").value
    u, s, vt = np.linalg.svd(value.astype(np.float64))
    rank = edited.find("L1.W_V").value.shape[0]
    assert (s[:rank] ** 2).sum() >= 0.7 * (s**2).sum() > (s[: rank - 1] ** 2).sum()
    np.testing.assert_allclose(product, (u[:, :rank] * s[:rank]) @ vt[:rank], atol=1e-6)
    path = saved(tmp_path / "a.pb")
    net = opscope.edit(path).low_rank("hidden.w", 2, factors=False).net
    value = opscope.load(path).scope.find("hidden.w").array
    u, s, vt = np.linalg.svd(value.astype(np.float64))
    np.testing.assert_allclose(
        net.scope.find("hidden.w").array, (u[:, :2] * s[:2]) @ vt[:2], atol=1e-6
    )


def test_full_rank_and_names_change_no_number(tmp_path):
    path = saved(tmp_path / "a.pb")
    x = RNG.normal(size=(5, 6)).astype("f")
    want = opscope.load(path).predict({"x": x}, fetch="y")["y"]
    changes = (
        lambda e: e.low_rank("hidden.w", 6).low_rank("scores.w", 3),
        lambda e: e.rename("hidden*", "first*").rename("x", "input"),
        lambda e: e.remove("drop", bypass=True),
    )
    for number, change in enumerate(changes):
        editor = change(opscope.edit(path))
        editor.save(tmp_path / "b.pb")
        name = "input" if number == 1 else "x"
        got = opscope.load(tmp_path / "b.pb").predict({name: x}, fetch="y")["y"]
        np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("name", ["tdnn", "lstmp"])
def test_trained_networks_of_kaldi(name, tmp_path):
    path = need("trained", name, "model.raw")
    original = Nnet.read(path)
    affine = [
        key
        for key, one in original.components.items()
        if one.type in ("AffineComponent", "NaturalGradientAffineComponent")
    ]
    first = original.components[affine[0]]
    editor = opscope.edit(path).low_rank(affine[0], min(first.input_dim, first.output_dim))
    editor.save(tmp_path / "b.raw")
    found = opscope.compare(path, tmp_path / "b.raw")
    assert found.rows[-1].name == "output" and found.rows[-1].error < 1e-4
    opscope.edit(path).freeze("*").save(tmp_path / "c.raw")
    found = opscope.compare(path, tmp_path / "c.raw")
    assert {row.error for row in found.rows} == {0.0}


def test_a_network_of_cntk(tmp_path):
    path = DATA / "cntk" / "slu.forward.cmf"
    if not path.exists():
        pytest.skip("shared/data/cntk/slu.forward.cmf is not there")
    editor = opscope.edit(path)
    weights = [n.name for n in editor.net.nodes.values() if n.is_parameter and n.value.ndim == 2]
    assert weights
    editor.rename("*", "own.*").check()
    editor.save(tmp_path / "b.dnn")
    again = read_model(tmp_path / "b.dnn")
    assert sorted(node.name for node in again.nodes.values()) == sorted(
        f"own.{node.name}" for node in opscope.edit(path).net.nodes.values()
    )


# Structure


def test_another_output(tmp_path):
    net = opscope.edit(nnet()).new_output(9, "output").net
    assert net.output_dim("output") == 9 and net.components["a2"].max_change == 0
    assert not net.components["a2"].linear_params.any()
    assert (net.components["a1"].linear_params == nnet().components["a1"].linear_params).all()
    random = opscope.edit(nnet()).new_output(9, "output", random=True).net.components["a2"]
    assert 0.2 < random.linear_params.std() < 0.6
    cntk = opscope.edit(network()).new_output(5).check().net
    assert cntk.find("OL.z").shape == (5,) and cntk.find("labels").shape == (5,)
    path = saved(tmp_path / "a.pb")
    opscope.edit(path).new_output(7).save(tmp_path / "b.pb")
    x = RNG.normal(size=(4, 6)).astype("f")
    got = opscope.load(tmp_path / "b.pb").predict({"x": x}, fetch=["y", "hidden"])
    np.testing.assert_allclose(got["y"], np.full((4, 7), 1 / 7), atol=1e-6)
    np.testing.assert_array_equal(
        got["hidden"], opscope.load(path).predict({"x": x}, fetch="hidden")["hidden"]
    )


def test_other_outputs_are_refused():
    with pytest.raises(FormatError, match="say which output: output, output-x"):
        opscope.edit(nnet()).new_output(9)
    with pytest.raises(FormatError, match=r"reads Offset\(r1, 1\), which is no affine layer"):
        opscope.edit(nnet()).new_output(9, "output-x")
    with pytest.raises(FormatError, match=r"no output 'outputs' \(did you mean output"):
        opscope.edit(nnet()).new_output(9, "outputs")
    with pytest.raises(VariableError, match="L1.y is no affine layer.*L1.y is Tanh"):
        opscope.edit(network()).new_output(9, "L1.y")
    shared = opscope.edit(nnet()).connect("output-x", "a2")
    with pytest.raises(FormatError, match="'a2' is the output's, and also used by output-x"):
        shared.new_output(4, "output")


def test_parts_are_cut_out(tmp_path):
    editor = opscope.edit(nnet()).cut(outputs={"output": "r1"})
    assert list(editor.net.components) == ["a1", "r1"]
    assert [n.name for n in editor.net.outputs()] == ["output"]
    rest = opscope.edit(nnet()).cut(inputs={"input": "r1"}, outputs="output").net
    assert [(n.name, n.dim) for n in rest.inputs()] == [("input", 7)]
    assert list(rest.components) == ["drop", "a2", "s"]
    part = opscope.edit(network()).cut(inputs="L1.y").check().net
    assert sorted(part.nodes) == ["L1.y", "OL.W", "OL.b", "OL.t", "OL.z", "ce", "labels"]
    path = saved(tmp_path / "a.pb")
    x = RNG.normal(size=(3, 6)).astype("f")
    whole = opscope.load(path).predict({"x": x}, fetch=["hidden", "y"])
    opscope.edit(path).cut(outputs={"emb": "hidden"}).save(tmp_path / "front.pb")
    opscope.edit(path).cut(inputs={"emb": "hidden"}).save(tmp_path / "back.pb")
    front = opscope.load(tmp_path / "front.pb").predict({"x": x}, fetch="emb")["emb"]
    np.testing.assert_array_equal(front, whole["hidden"])
    back = opscope.load(tmp_path / "back.pb").predict({"emb": front}, fetch="y")["y"]
    np.testing.assert_array_equal(back, whole["y"])
    with pytest.raises(VariableError, match="no operator computes 'scores.b': it is given"):
        opscope.edit(path).cut(outputs="scores.b")
    with pytest.raises(FormatError, match="no output depends on 's', which was to be an input"):
        opscope.edit(nnet()).cut(inputs="s", outputs={"output": "r1"})


def test_nodes_come_and_go(tmp_path):
    net = (
        opscope.edit(nnet())
        .insert("n", "NormalizeComponent", after="r1")
        .insert("p", "NaturalGradientAffineComponent", before="a2", output_dim=7, seed=3)
        .replace("r1", "SigmoidComponent")
        .remove("drop", bypass=True)
        .net
    )
    lines = [line for line in net.config_lines() if "node" in line]
    assert "component-node name=n component=n input=r1" in lines
    assert "component-node name=p component=p input=n" in lines
    assert "output-node name=output-x input=Offset(n, 1) objective=linear" in lines
    assert net.components["r1"].type == "SigmoidComponent" and "drop" not in net.components
    eye = np.eye(3, dtype="f") * 2
    cntk = opscope.edit(network()).insert("s", "Times", after="OL.z", inputs=[eye, "OL.z"])
    cntk.replace("L1.y", "Sigmoid").check()
    assert [n.name for n in cntk.net.groups["output"]] == ["s"]
    assert (
        cntk.net.find("ce").inputs[1].name == "s" and cntk.net.find("L1.y").operation == "Sigmoid"
    )
    path = saved(tmp_path / "a.pb")
    x = RNG.normal(size=(3, 6)).astype("f")
    scores = opscope.load(path).predict({"x": x}, fetch="scores")["scores"]
    editor = opscope.edit(path).insert("twice", "matmul", after="scores", inputs=["scores", eye])
    editor.replace("y", "tanh").save(tmp_path / "b.pb")
    got = opscope.load(tmp_path / "b.pb").predict({"x": x}, fetch="y")["y"]
    np.testing.assert_allclose(got, np.tanh(2 * scores), rtol=1e-5)


def test_operators_are_put_in_order(tmp_path):
    path = saved(tmp_path / "a.pb")
    eye = np.eye(8, dtype="f")
    editor = opscope.edit(path).insert("h2", "matmul", after="hidden", inputs=["hidden", eye])
    editor.connect("drop", "hidden").insert("sum", "add", after="drop", inputs=["h2", "drop"])
    editor.connect("h2", "drop").check()
    results = [op.output_names()[0] for op in editor.net.net.op_list.ops]
    assert results.index("drop") < results.index("h2") < results.index("sum")
    with pytest.raises(OpscopeError, match="wait for each other"):
        editor.connect("drop", "h2").check()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.remove("r1"), "remove: node 'r1' is read by 'drop', 'output-x'"),
        (lambda e: e.rename("a1", "r1"), "rename: there is a node 'r1' already"),
        (lambda e: e.rename("s_input", "t"), "'s_input' is what component-node 's' reads"),
        (lambda e: e.cut(outputs="s_input"), "'s_input' is what component-node 's' reads"),
        (lambda e: e.rename("q*", "b*"), "no node is called 'q\\*'"),
        (lambda e: e.freeze("a3"), "freeze: no component is called 'a3'; there are a1, r1"),
        (lambda e: e.freeze("r1"), "none of the components that are meant has parameters"),
        (lambda e: e.low_rank("a*", 0), "one of rank= .at least 1. and keep="),
        (lambda e: e.low_rank("a1", 99), "none of a1 is an affine component"),
        (lambda e: e.replace("r1", "Sigmoid"), "unknown component type 'Sigmoid'"),
        (lambda e: e.replace("r1", "TanhComponent", dim=3), "wants 3|reads a1 of dimension 7"),
        (lambda e: e.connect("a2", "q"), "q"),
        (lambda e: e.connect("a2", "input"), "of dimension 8, but its component 'a2' .* wants 7"),
        (lambda e: e.remove_outputs("*"), "this would remove all outputs"),
        (lambda e: e.dropout("*", 1.5), "proportion=1.5 must be from 0 to 1"),
        (lambda e: e.rates("a1", -1), "-1 is no rate"),
        (lambda e: e.set_value("a1/linear_params", [1.0]), r"is \[7, 16\], not \[1\]"),
        (lambda e: e.edits("foo a=b"), "--edits:1: 'foo' is no edit directive"),
        (lambda e: e.edits("remove-orphans; rename-node old-name=q"), "--edits:2: new-name= is"),
        (lambda e: e.mel("Rename(a1, b1)\n  Sav(x)"), "<string>:2:3: Unknown Editor function Sav"),
        (lambda e: e.mel("SaveDefaultModel(x)"), "the editor writes the result"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(change, message, tmp_path):
    editor = opscope.edit(nnet())
    with pytest.raises(OpscopeError, match=message):
        change(editor)
    assert not editor.difference() and str(editor.difference()) == "no difference"
    assert editor.done == []


def test_shapes_are_checked_before_anything_is_written(tmp_path):
    editor = (
        opscope.edit(network()).set_value("OL.b", np.ones((3, 1), "f")).connect("OL.t", "ce", 1)
    )
    with pytest.raises(OpscopeError, match=r"OL\.[tz]|ce"):
        editor.save(tmp_path / "b.dnn")
    removed = opscope.edit(network()).remove("L1.y")
    with pytest.raises(OpscopeError, match="OL.t Times operation: input 1 is not connected"):
        removed.save(tmp_path / "b.dnn")
    path = saved(tmp_path / "a.pb")
    with pytest.raises(ShapeError, match="affine"):
        opscope.edit(path).insert("m", "matmul", after="hidden", inputs=["hidden", np.ones((8, 5))])
    assert not (tmp_path / "b.dnn").exists()


def test_the_original_is_not_overwritten(tmp_path):
    path = saved(tmp_path / "a.pb")
    before = path.read_bytes()
    os.symlink(path, tmp_path / "link.pb")
    os.link(path, tmp_path / "hard.pb")
    (tmp_path / "sub").mkdir()
    for other in ("a.pb", "a", "link.pb", "hard.pb", "sub/../a.pb"):
        with pytest.raises(SaveError, match="this is the file that was read"):
            opscope.edit(path).new_output(4).save(tmp_path / other)
    assert path.read_bytes() == before
    opscope.edit(path).new_output(4).save(overwrite=True)
    assert path.read_bytes() != before
    with pytest.raises(SaveError, match="save.path."):
        opscope.edit(nnet()).save(overwrite=True)


def test_renamed_parameters_are_trained_on_as_before(tmp_path):
    """What is named after a parameter goes along: gradients, clipped ones, states, copies."""
    b = opscope.NetBuilder("net")
    x, label = b.input("x", [-1, 4]), b.input("label", [-1], "int64")
    scores = b.fc(b.fc(x, 5, "relu", name="h"), 3, name="scores")
    b.mean(b.softmax_cross_entropy(scores, label), name="cost")
    b.add_optimization(0.1, "adamw", clip_value=1.0)
    rows = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    data, scope = [{"x": rows, "label": np.arange(8) % 3}], opscope.Scope()
    opscope.train(b, data, epochs=2, scope=scope, loss="cost", progress=False)
    opscope.save(b, scope, tmp_path / "net.pb")
    opscope.edit(tmp_path / "net.pb").rename("scores.w", "v").save(tmp_path / "new.pb")
    nets = [opscope.load(tmp_path / name, train=True) for name in ("net.pb", "new.pb")]
    losses = [
        opscope.train(net, data, epochs=3, loss="cost", progress=False)["cost"] for net in nets
    ]
    assert losses[0] == losses[1] and losses[0][-1] < losses[0][0]
    names = list(nets[1].net.vars)
    assert {"v", "v@GRAD", "v@GRAD@CLIP", "v@ADAMW_MOMENT1"} <= set(names)
    assert not [name for name in names if name.startswith("scores.w")]


def test_training_operators_go_with_a_note(tmp_path):
    path = saved(tmp_path / "a.pb", train=True)
    kept = opscope.edit(path).rename("hidden", "first")
    assert kept.notes == [] and any(op.role for op in kept.net.net.op_list.ops)
    editor = opscope.edit(path).freeze("hidden*").rates("scores.*", 0.5)
    assert (
        len(editor.notes) == 1 and "operators of gradients and updates are gone" in editor.notes[0]
    )
    editor.save(tmp_path / "b.pb")
    net, scope = opscope.load(tmp_path / "b.pb", train=True)
    net.add_backward_ops("loss")
    net.add_optimizer_ops(opscope.OptimizerAttrs("sgd", learning_rate=0.1))
    weights = {n: scope.find(n).array.copy() for n in ("hidden.w", "scores.w")}
    feed = {"x": RNG.normal(size=(4, 6)).astype("f"), "label": np.array([0, 1, 2, 0])}
    for name, value in feed.items():
        scope.var(name).bind(value)
    initialize(net.op_list, scope, opscope.OpContext(seed=0))
    net.run(scope, opscope.OpContext(seed=0))
    assert (scope.find("hidden.w").array == weights["hidden.w"]).all()
    assert (scope.find("scores.w").array != weights["scores.w"]).any()


def test_the_page_and_the_given_net(tmp_path):
    given = nnet()
    editor = opscope.edit(given).freeze("a1").rename("r1", "relu")
    assert "relu" in editor.page().html
    assert given.has_node("r1") and editor.net.has_node("relu")
    assert given.components["a1"].learning_rate_factor == 1
    with pytest.raises(VariableError, match="the numbers of a net are in a scope"):
        opscope.edit(opscope.NetBuilder("empty"))
    (tmp_path / "x.txt").write_text("hello")
    with pytest.raises(FormatError, match="x.txt"):
        opscope.edit(tmp_path / "x.txt")
