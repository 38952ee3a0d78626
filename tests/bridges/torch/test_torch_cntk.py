"""CNTK's networks as PyTorch modules: outputs, exporting, training, and the way back."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import cntk_data
import opscope
from cntk_exported import feed_forward_net, loop_net, random_net, slot_filler, slot_sentences
from cntk_runtime_nets import Builder
from opscope import to_torch, weights_from_torch
from opscope.bridges.torch.folder import NotInTorchError
from opscope.cntk.models.open_model import open_model
from opscope.cntk.run.runtime import CntkNet
from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError, VariableError
from opscope.python_api.cli.main import main
from v2_models import recurrent

torch = pytest.importorskip("torch", reason="torch is not installed")
load_file = pytest.importorskip("safetensors.torch").load_file


def module_of(folder):
    """The module `model` in a folder."""
    spec = importlib.util.spec_from_file_location("written_model", Path(folder) / "model.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # torch.export compiles its functions by the module's name
    spec.loader.exec_module(module)
    return module


def model_of(folder):
    return module_of(folder).load(folder)


def named(found, made):
    return found if isinstance(found, dict) else {next(iter(made.config["outputs"])): found}


def assert_equals(net, folder, lengths=(1, 2, 9), **options):
    """The module computes what the network does."""
    made = to_torch(net, folder, **options)
    model, rng = model_of(folder), np.random.default_rng(1)
    timed = bool(made.config["sequences"])
    names = {arg: arg for arg in made.config["inputs"]}
    for length in lengths:
        arrays = {
            names[arg]: rng.normal(size=(length, *dims[1:])).astype(np.float32)
            for arg, dims in made.config["inputs"].items()
        }
        fed = {name: [a] if timed else a for name, a in arrays.items()}
        single = CntkNet(net.network, dtype=np.float32)
        for name, node in net.network.nodes.items():
            if (node.is_parameter or node.kind.precompute) and name in net.scope:
                single.set(name, net.get(name))
        wanted = single.eval(fed, list(made.config["outputs"]))
        with torch.no_grad():
            given = [
                torch.from_numpy(a)[None] if timed else torch.from_numpy(a) for a in arrays.values()
            ]
            found = named(model(*given), made)
        for name, value in found.items():
            ours = wanted[name][0] if timed else wanted[name]
            here = value[0].numpy() if timed else value.numpy()
            assert here.shape == ours.shape
            bound = 1e-5 * max(1.0, float(np.abs(ours).max()))
            np.testing.assert_allclose(here, ours, atol=bound, rtol=0)
    return made, model


def exported(model, *inputs, dims):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(model, inputs, dynamic_shapes=[dims] * len(inputs))


@pytest.fixture
def feed_forward(tmp_path):
    return feed_forward_net(tmp_path)


def test_feed_forward(tmp_path, feed_forward):
    """Criteria and labels fall away, statistics are buffers; [N, 4] -> [N, 3]."""
    made, model = assert_equals(feed_forward, tmp_path / "made")
    assert made.config["inputs"] == {"features": [-1, 4]}
    assert made.config["outputs"] == {"z": [-1, 3]} and not made.config["sequences"]
    assert set(dict(model.named_buffers())) == {"m", "d"}
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {
        "W.weight",
        "W.bias",
    }
    assert "labels" not in made.source and "nn.Dropout" in made.source
    ran = subprocess.run(
        [sys.executable, tmp_path / "made" / "check.py"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("equal") == 2


@pytest.mark.parametrize("seed", range(16))
def test_random_networks(tmp_path, seed):
    """Delays in and out of loops, several loops, looking ahead."""
    net, names = random_net(seed)
    assert_equals(net, tmp_path, outputs=names)


@pytest.mark.parametrize("delay", ["PastValue", "FutureValue"])
@pytest.mark.parametrize("steps", [1, 2])
def test_loops(tmp_path, delay, steps):
    """Loops over any number of steps, in the program that torch.export makes, too."""
    made, model = assert_equals(loop_net(delay, steps), tmp_path, outputs=["h"])
    assert "R = nn.Linear(3, 3, bias=False)" in made.source
    if (steps == 1) != (delay == "PastValue"):
        return  # exporting takes seconds: one of each is enough
    auto = torch.export.Dim.AUTO
    program = exported(model, torch.randn(3, 5, 2), dims={0: auto, 1: auto})
    for shape in ((1, 2, 2), (4, 9, 2)):
        given = torch.randn(*shape)
        torch.testing.assert_close(program.module()(given), model(given), atol=1e-6, rtol=0)


def stack(operation, bidirectional=True):
    b = Builder()
    x = b.add("InputValue", "x", shape=3)
    weights = b.add("LearnableParameter", "W", shape=(0, 0), init="uniform")
    how = {"recurrentOp": operation, "hiddenDims": 4, "numLayers": 2, "axis": -1}
    b.add("OptimizedRNNStack", "out", weights, x, bidirectional=bidirectional, **how)
    return b.net(), ["out"]


@pytest.mark.parametrize(
    ("operation", "wanted"), [("lstm", "LSTM"), ("gru", "GRU"), ("rnnTanh", "RNN")]
)
def test_stacks_are_layers(tmp_path, operation, wanted):
    """Layers hold the parts of the one parameter with all weights."""
    net, outputs = stack(operation)
    made, model = assert_equals(net, tmp_path, outputs=outputs)
    assert made.source.count(f"nn.{wanted}(") == 4 and set(made.config["parameters"].values()) == {
        "W"
    }
    assert sum(p.numel() for p in model.parameters()) == net.get("W").size


def test_initial_state(tmp_path):
    b = Builder()
    x = b.add("InputValue", "x", shape=3)
    start = b.parameter("start", 3)
    inside = b.add("PastValue", "inside", shape=3)
    h = b.add("Tanh", "h", b.add("Plus", "sum", x, inside))
    b.network.connect(inside, [h, start])
    b.add("PastValue", "y", h, b.parameter("other", 3), shape=3, timeStep=2)
    assert_equals(b.net(), tmp_path, outputs=["y", "h"])


def test_v2_models(tmp_path):
    (tmp_path / "r.model").write_bytes(recurrent())
    made, _ = assert_equals(CntkNet(open_model(tmp_path / "r.model").network), tmp_path / "made")
    assert list(made.config["outputs"]) == ["Dropout11"]
    with pytest.raises(FormatError, match="are read, and not written"):
        weights_from_torch(tmp_path / "made", tmp_path / "r.model", tmp_path / "new.model")


def normalized(spatial):
    b = Builder()
    x = b.add("InputValue", "x", shape=(4, 3, 2) if spatial else 4)
    count = 2 if spatial else 4
    nodes = [b.parameter(name, count) for name in ("scale", "bias", "mean", "variance")]
    b.values["variance"] = abs(b.values["variance"])
    b.add("BatchNormalization", "y", x, *nodes, spatial=spatial, imageLayout="CHW")
    return b.net(), ["y"]


@pytest.mark.parametrize("spatial", [False, True])
def test_batch_normalization(tmp_path, spatial):
    net, outputs = normalized(spatial)
    made, _ = assert_equals(net, tmp_path, outputs=outputs)
    assert "momentum" in made.notes[0]


def image_net(padding, kernel):
    """A convolution, a bias for each map, poolings."""
    b = Builder()
    x = b.add("InputValue", "x", shape=(7, 6, 2))
    weight = b.parameter("K", 5, kernel * 3 * 2)
    conv = b.add(
        "Convolution", "conv", weight, x, kernelShape=(kernel, 3, 2), mapCount=(5,),
        strideShape=(2, 1, 2), dimSharing=(True,), dimPadding=(padding, padding, False),
        imageLayout="CHW",
    )  # fmt: skip
    plus = b.add("Plus", "plus", conv, b.parameter("c", 1, 1, 5))
    for pool in ("max", "average"):
        b.add("Pooling", pool, plus, pool=pool, kernelShape=(2, 2, 1), strideShape=(1, 2, 1),
              dimPadding=(False,), imageLayout="CHW")  # fmt: skip
    return b.net(), ["max", "average"]


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("kernel", [2, 3])
def test_images(tmp_path, padding, kernel):
    net, outputs = image_net(padding, kernel)
    made, _ = assert_equals(net, tmp_path, outputs=outputs, lengths=(1, 3))
    assert "K = nn.Conv2d(2, 5, " in made.source
    assert made.config["parameters"] == {"K.weight": "K", "K.bias": "c"}


def test_other_images(tmp_path):
    """A transposed convolution, and one in CNTK's old layout."""
    b = Builder()
    x = b.add("InputValue", "x", shape=(4, 3, 2))
    b.add(
        "Convolution", "wide", b.parameter("K", 3, 3, 5, 2), x, kernelShape=(3, 3, 5),
        mapCount=(2,), strideShape=(2, 2, 5), dimSharing=(True,),
        dimPadding=(True, True, False), transpose=True, imageLayout="CHW",
    )  # fmt: skip
    y = b.add("InputValue", "y", shape=(7, 6, 2))
    b.add(
        "Convolution", "old", b.parameter("L", 5, 2 * 3 * 3), y, kernelShape=(3, 3, 2),
        mapCount=(5,), strideShape=(1, 1, 2), dimSharing=(True,), dimPadding=(False,),
        imageLayout="HWC",
    )  # fmt: skip
    made, _ = assert_equals(b.net(), tmp_path, outputs=["wide", "old"])
    assert "nn.ConvTranspose2d(2, 5, 3" in made.source and "nn.Conv2d(2, 5, 3" in made.source


def test_sequences_of_lengths_of_their_own(tmp_path):
    b = Builder()
    axes = [b.add("DynamicAxis", name).name for name in ("first", "second")]
    x, y = (b.add("InputValue", n, shape=3, dynamicAxis=a) for n, a in zip("xy", axes, strict=True))
    b.add("PastValue", "before", x, shape=3)
    b.add("FutureValue", "after", y, shape=3)
    made = to_torch(b.net(), tmp_path, outputs=["before", "after"])
    model = model_of(tmp_path)
    given = {"x": torch.randn(2, 4, 3), "y": torch.randn(2, 7, 3)}
    found = model(**given)
    torch.testing.assert_close(found["before"][:, 1:], given["x"][:, :-1])
    torch.testing.assert_close(found["after"][:, :-1], given["y"][:, 1:])
    assert sorted(made.config["sequences"]) == ["after", "before", "x", "y"]


def shapes_and_functions():
    b = Builder()
    x = b.add("InputValue", "x", shape=(2, 3))
    turned = b.add("TransposeDimensions", "turned", x, axis1=1, axis2=2)
    flat = b.add("Reshape", "flat", turned, shape=(6,))
    part = b.add("Slice", "part", flat, axis=1, beginIndex=1, endIndex=5)
    both = b.add("RowStack", "both", part, b.parameter("more", 2))
    soft = b.add("Softmax", "soft", both)
    log = b.add("Log", "log", soft)
    b.add("ReduceElements", "total", log, axis=1, reductionOp="LogSum")
    b.add("ElementTimes", "scaled", x, b.parameter("s", 2, 1))
    b.add("TransposeTimes", "product", b.parameter("T", 6, 4), both)
    again = b.parameter("again", 6, 6)
    first = b.add("Times", "first", again, both)
    b.add("Times", "second", again, b.add("RectifiedLinear", "up", first))
    b.add("KhatriRaoProduct", "outer", part, both)
    b.add("SumColumnElements", "sums", x)
    b.add("LookupTable", "looked", b.parameter("L", 2, 3), flat)
    b.add("Clip", "clip", b.parameter("low", 1), b.parameter("high", 1), log)
    b.values["low"], b.values["high"] = np.full(1, -2.0), np.full(1, -1.5)
    outputs = ["total", "scaled", "product", "second", "clip", "soft"]
    outputs += ["outer", "sums", "looked", "biased"]
    b.add("Plus", "biased", b.parameter("bias", 4), b.network.nodes["product"])
    other = b.add("TransposeTimes", "other", b.parameter("U", 6, 3), both)
    b.add("Plus", "total_of_both", other, b.parameter("c", 3))
    return b.net(), [*outputs, "total_of_both"]


def test_shapes_and_functions(tmp_path):
    net, outputs = shapes_and_functions()
    made, _ = assert_equals(net, tmp_path, outputs=outputs)
    assert made.config["parameters"]["U.bias"] == "c"
    assert made.source.count("self.again = nn.Parameter(") == 1  # two products share it


CASES = {
    name: outputs
    for names, outputs in (
        (
            "01_simplebuilder_dnn 02_ndl_macros_dnn 03_bs_language_dnn 04_mel_edit"
            " 05_uci_reader_dnn 06_ctf_sparse_streams 07_htk_frame_rolling"
            " 09_htk_lstm_truncated_ndl 11_bidirectional_rnn 12_atis_layers 14_conv_pool_layers"
            " 19_lu_reader_lstm 36_ctf_truncated_bptt 37_numsubminibatches 41_htk_two_streams",
            None,
        ),
    )
    for name in names.split()
}
"""Cases of the conformance tests -> outputs, where the network names none."""


@pytest.mark.parametrize("case", CASES)
def test_models_that_cntk_trained(tmp_path, case):
    path = cntk_data.need(case, "final.model")
    try:
        made = to_torch(path, tmp_path, outputs=CASES[case])
    except VariableError:
        criterion = open_model(path).network.groups["criterion"][0]
        made = to_torch(path, tmp_path, outputs=[criterion.inputs[1].name])
    recorded = load_file(tmp_path / "check.safetensors")
    model = model_of(tmp_path)
    for number in range(2):
        given = [recorded[f"{number}.{arg}"] for arg in made.config["inputs"]]
        with torch.no_grad():
            found = named(model(*given), made)
        for name, value in found.items():
            wanted = recorded[f"{number}.output.{name}"]
            bound = 1e-5 * max(1.0, float(wanted.abs().max()))
            torch.testing.assert_close(value, wanted, atol=bound, rtol=0)


def test_what_is_refused(tmp_path):
    b = Builder()
    x = b.add("InputValue", "x", shape=3)
    y = b.add("InputValue", "y", shape=3)
    b.add("CrossEntropyWithSoftmax", "ce", y, x)
    b.add("CosDistance", "far", x, y)
    net = b.net()
    with pytest.raises(NotInTorchError, match="makes 'ce': criteria and evaluations are of train"):
        to_torch(net, tmp_path, outputs=["ce", "far"])
    with pytest.raises(VariableError, match="no output nodes"):
        to_torch(net, tmp_path)
    with pytest.raises(VariableError, match="no node 'cd'"):
        to_torch(net, tmp_path, outputs=["cd"])
    with pytest.raises(OpscopeError, match="each once"):
        to_torch(net, tmp_path, outputs=["x", "x"])
    assert not list(tmp_path.iterdir())


def trained(folder, given, labels):
    """The module after two steps, saved in its folder; the losses."""
    module = module_of(folder)
    model = module.load(folder).train()
    for each in model.modules():
        if isinstance(each, torch.nn.BatchNorm1d):
            each.eval()
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.5)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(given).flatten(0, -2), labels.flatten())
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    module.save(model, folder)
    return model.eval(), losses


def test_weights_back(tmp_path, feed_forward):
    """What PyTorch trained computes the same in CNTK's file; what it did not, is as it was."""
    feed_forward.save(tmp_path / "m.dnn")
    to_torch(tmp_path / "m.dnn", tmp_path / "made")
    given, labels = torch.randn(8, 4), torch.randint(0, 3, (8,))
    assert weights_from_torch(tmp_path / "made", tmp_path / "m.dnn", tmp_path / "same.dnn") == []
    assert (tmp_path / "same.dnn").read_bytes() == (tmp_path / "m.dnn").read_bytes()
    model, (first, second) = trained(tmp_path / "made", given, labels)
    assert second < first
    changed = weights_from_torch(tmp_path / "made", tmp_path / "m.dnn", tmp_path / "new.dnn")
    assert sorted(changed) == ["W", "b"]
    net = CntkNet(open_model(tmp_path / "new.dnn").network)
    with torch.no_grad():
        wanted = model(given).numpy()
    np.testing.assert_allclose(net.eval({"features": given.numpy()})["z"], wanted, atol=1e-5)
    np.testing.assert_array_equal(net.get("V"), feed_forward.get("V"))
    assert {"ce"} == {node.name for node in net.network.groups["criterion"]}


@pytest.mark.parametrize(
    "make",
    [
        lambda: normalized(True),
        lambda: image_net(True, 3),
        shapes_and_functions,
        lambda: (loop_net("PastValue", 2), ["h"]),
        lambda: stack("lstm"),
        lambda: stack("gru", bidirectional=False),
    ],
)
def test_all_weights_return_to_their_places(tmp_path, make):
    """Whatever shape a layer gives a parameter: changed ones compute the same in CNTK's file."""
    from safetensors.torch import save_file

    net, outputs = make()
    net.save(tmp_path / "m.dnn")
    made = to_torch(tmp_path / "m.dnn", tmp_path / "made", outputs=outputs)
    path = tmp_path / "made" / "model.safetensors"
    state = {
        name: array + torch.rand_like(array) if array.is_floating_point() else array
        for name, array in load_file(path).items()
    }
    save_file(state, path)
    changed = weights_from_torch(tmp_path / "made", tmp_path / "m.dnn", tmp_path / "new.dnn")
    assert sorted(changed) == sorted({*made.config["parameters"].values()})
    new = CntkNet(open_model(tmp_path / "new.dnn").network)
    assert_equals(new, tmp_path / "again", outputs=outputs)
    found = load_file(tmp_path / "again" / "model.safetensors")
    assert found.keys() == state.keys()
    for name, array in found.items():
        torch.testing.assert_close(array, state[name], atol=0, rtol=0)


def test_parameters_that_do_not_learn_are_frozen(tmp_path):
    net, outputs = shapes_and_functions()
    net.network.nodes["T"].learning_rate = 0.0
    _, model = assert_equals(net, tmp_path, outputs=outputs)
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["T.weight"]


def test_weights_that_do_not_fit(tmp_path, feed_forward):
    from safetensors.torch import save_file

    feed_forward.save(tmp_path / "m.dnn")
    to_torch(tmp_path / "m.dnn", tmp_path / "made")
    with pytest.raises(OpscopeError, match="is the original"):
        weights_from_torch(tmp_path / "made", tmp_path / "m.dnn", tmp_path / "m.dnn")
    path = tmp_path / "made" / "model.safetensors"
    state = load_file(path)
    bad = {**state, "W.weight": torch.zeros(4, 5), "more": torch.zeros(1)}
    for given, text in (
        (bad, r"'more' is not known there; 'W.weight' is \[4, 5\], not \[5, 4\]"),
        ({**state, "W.bias": torch.full((5,), torch.nan)}, "'W.bias' is not finite"),
    ):
        save_file(given, path)
        with pytest.raises(ShapeError, match=text):
            weights_from_torch(tmp_path / "made", tmp_path / "m.dnn", tmp_path / "new.dnn")
    config = json.loads((tmp_path / "made" / "config.json").read_text())
    config["outputs"] = {"other": [3]}
    (tmp_path / "made" / "config.json").write_text(json.dumps(config))
    with pytest.raises(FormatError, match="is not what .*no node 'other'"):
        weights_from_torch(tmp_path / "made", tmp_path / "m.dnn", tmp_path / "new.dnn")
    assert not (tmp_path / "new.dnn").exists()


def test_a_model_of_cntk(tmp_path):
    """Slot filling: its sentences as here, exported, trained, and back in a .cmf by commands."""
    path, folder = slot_filler(), tmp_path / "slu"
    runner = CliRunner()
    made = runner.invoke(main, ["to-torch", str(path), str(folder)])
    assert made.exit_code == 0 and "723279 parameters" in made.output
    model = model_of(folder)
    sentences, labels = (each[:40] for each in slot_sentences())
    net = CntkNet(open_model(path).network)
    ours = net.eval({"query": sentences}, ["z"])["z"]
    auto = torch.export.Dim.AUTO
    program = exported(model, torch.randn(2, 4, 943), dims={0: auto, 1: auto}).module()
    worst = 0.0
    for number, (one, wanted) in enumerate(zip(sentences, ours, strict=True)):
        given = torch.from_numpy(one)[None]
        with torch.no_grad():
            worst = max(worst, float(np.abs(model(given)[0].numpy() - wanted).max()))
            if number < 5:
                worst = max(worst, float(np.abs(program(given)[0].numpy() - wanted).max()))
    assert worst < 1e-5 * max(float(np.abs(each).max()) for each in ours)

    given, label = torch.from_numpy(sentences[0])[None], torch.from_numpy(labels[0]).argmax(1)
    model, (first, second) = trained(folder, given, label)
    assert second < first
    back = tmp_path / "new.cmf"
    told = runner.invoke(main, ["from-torch", str(folder), str(path), str(back)])
    assert told.exit_code == 0, told.output
    assert told.output == f"{back}: 10 parameters have new values\n"
    new = CntkNet(open_model(back).network)
    with torch.no_grad():
        wanted = model(given)[0].numpy()
    np.testing.assert_allclose(
        new.eval({"query": [sentences[0]]}, ["z"])["z"][0], wanted, atol=2e-4
    )
    assert [node.name for node in new.network.groups["criterion"]] == ["ce"]
    assert opscope.open(back).kind == opscope.open(path).kind


def test_options_of_other_networks(tmp_path, feed_forward):
    feed_forward.save(tmp_path / "m.dnn")
    command = ["to-torch", str(tmp_path / "m.dnn"), str(tmp_path / "made")]
    told = CliRunner().invoke(main, [*command, "--frame-subsampling-factor", "3"])
    assert told.exit_code and "no meaning for a network of CNTK" in told.output + str(
        told.exception
    )


def test_one_face_for_both_kinds(tmp_path, feed_forward):
    from opscope.nnet3 import Nnet

    feed_forward.save(tmp_path / "m.dnn")
    config = "input-node name=input dim=2\noutput-node name=output input=input\n"
    Nnet.from_config_text(config, 0).write(tmp_path / "a.raw")
    to_torch(tmp_path / "m.dnn", tmp_path / "of_cntk")
    for option in ({"whole": True}, {"frame_subsampling_factor": 3}):
        with pytest.raises(OpscopeError, match=f"{next(iter(option))} has no meaning for"):
            to_torch(tmp_path / "m.dnn", tmp_path / "made", **option)
    with pytest.raises(FormatError, match=r"model_type is 'cntk', but .*a\.raw is a Kaldi nnet3"):
        weights_from_torch(tmp_path / "of_cntk", tmp_path / "a.raw", tmp_path / "b.raw")
    (tmp_path / "text").write_text("no model\n")
    with pytest.raises(FormatError, match="neither a net nor a file of Kaldi's"):
        to_torch(tmp_path / "text", tmp_path / "made")
    with pytest.raises(FormatError, match="PyTorch module folder; a network of Kaldi's"):
        to_torch(tmp_path / "of_cntk", tmp_path / "made")
    with pytest.raises(OpscopeError, match="you gave int"):
        to_torch(3, tmp_path / "made")
    assert not (tmp_path / "made").exists()
    assert not (tmp_path / "b.raw").exists()
