"""nnet3 networks as PyTorch modules: outputs, exporting, training, and the way back."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kaldi_data import need, read_archive
from nnet3_onnx import LAYERS_OF_FRAMES, with_statistics
from nnet3_torch import assert_equals, changed, layer_net, model_of, module_of, run, torch
from opscope import OpscopeError, to_torch, weights_from_torch
from opscope.bridges.torch.folder import NotInTorchError
from opscope.framework.base.errors import FormatError, ShapeError
from opscope.nnet3 import Nnet, xconfig_to_config
from opscope.python_api.cli.main import main

TRAINED = ("tdnn", "tdnnf")
LAYERS = {
    **LAYERS_OF_FRAMES,
    "spec_augment": "spec-augment-layer name=a",
    "repeated": "relu-layer name=b dim=8\nrelu-renorm-layer name=a dim=8 input=Append(b, -1, b@3)",
}


def trained_model(folder, name):
    return to_torch(need("trained", name, "model.raw"), folder / name)


@pytest.mark.parametrize("name", TRAINED)
def test_the_outputs_are_those_of_kaldi(name, tmp_path):
    model = model_of(trained_model(tmp_path, name).folder)
    wanted = read_archive(need("trained", name, "output.ark"))
    for key, features in read_archive(need("trained", "feats.ark")).items():
        assert np.abs(run(model, features) - wanted[key]).max() <= 1e-5 * np.abs(wanted[key]).max()


@pytest.mark.parametrize("name", TRAINED)
def test_frame_subsampling_as_kaldi_does(name, tmp_path):
    path = need("trained", name, "model.raw")
    to_torch(path, tmp_path, frame_subsampling_factor=3)
    model = model_of(tmp_path)
    wanted = read_archive(need("trained", name, "output_sub3.ark"))
    for key, features in read_archive(need("trained", "feats.ark")).items():
        found = np.exp(run(model, features))
        assert found.shape == wanted[key].shape
        assert np.abs(found - wanted[key]).max() <= 1e-5


def test_several_utterances_at_once(tmp_path):
    model = model_of(trained_model(tmp_path, "tdnnf").folder)
    x = torch.randn(3, 11, 40)
    with torch.no_grad():
        whole, single = model(x), torch.cat([model(each[None]) for each in x])
    assert float((whole - single).abs().max()) < 1e-5


def test_export_with_dynamic_batch_and_time(tmp_path):
    model = model_of(trained_model(tmp_path, "tdnn").folder)
    dynamic = {0: torch.export.Dim("N"), 1: torch.export.Dim("T")}
    program = torch.export.export(model, (torch.randn(2, 30, 40),), dynamic_shapes=(dynamic,))
    for shape in ((2, 30, 40), (5, 3, 40), (3, 211, 40)):
        x = torch.randn(shape)
        with torch.no_grad():
            assert float((program.module()(x) - model(x)).abs().max()) < 1e-5


def test_export_with_frame_subsampling(tmp_path):
    to_torch(layer_net(LAYERS["tdnnf"]), tmp_path, frame_subsampling_factor=3)
    model = model_of(tmp_path)
    dynamic = {0: torch.export.Dim("N"), 1: 3 * torch.export.Dim("thirds", min=2)}
    program = torch.export.export(model, (torch.randn(2, 30, 6),), dynamic_shapes=(dynamic,))
    x = torch.randn(3, 99, 6)
    with torch.no_grad():
        assert float((program.module()(x) - model(x)).abs().max()) < 1e-5


def structure(nnet):
    """What info tells, but for the statistics of numbers."""
    number = r"[-+.\de]+"
    text = re.sub(r"=\[[^]]*\]", "=", nnet.info())
    text = re.sub(r"\{mean,stddev\}=" + f"{number},{number}", "", text)
    return re.sub(f"-rms={number}", "", text)


@pytest.mark.parametrize("name", TRAINED)
def test_trained_weights_go_back(name, tmp_path):
    original = need("trained", name, "model.raw")
    folder = trained_model(tmp_path, name).folder
    assert weights_from_torch(folder, original, tmp_path / "same.raw") == []
    assert (tmp_path / "same.raw").read_bytes() == original.read_bytes()

    module = module_of(folder)
    model = module.load(folder).train()
    features, labels = torch.randn(4, 20, 40), torch.randint(0, 10, (4, 20))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = torch.nn.functional.nll_loss(model(features).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[1] < losses[0]
    module.save(model.eval(), folder)
    found = weights_from_torch(folder, original, tmp_path / "new.raw")
    assert "output.affine" in found and not {"lda", "idct"} & set(found)
    before, after = Nnet.read(original), Nnet.read(tmp_path / "new.raw")
    assert structure(after) == structure(before) and after.info() != before.info()
    assert_equals(model, after, bound=2e-5)


def test_weights_of_an_acoustic_model_go_back(tmp_path):
    original = need("formats", "final.mdl")
    try:
        folder = to_torch(original, tmp_path / "m").folder
    except FormatError as error:
        pytest.skip(f"the model of the reference data was not trained: {error}")
    weights_from_torch(folder, original, tmp_path / "new.mdl")
    assert (tmp_path / "new.mdl").read_bytes() == original.read_bytes()


@pytest.mark.parametrize("unit", [1, 3])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_recipes(name, unit, tmp_path):
    nnet = layer_net(LAYERS[name])
    made = to_torch(nnet, tmp_path, frame_subsampling_factor=unit)
    assert bool(made.notes) == (name == "spec_augment")
    assert_equals(model_of(tmp_path), nnet, unit=unit)


def test_ivectors(tmp_path):
    inputs = "input dim=3 name=ivector\ninput dim=6 name=input"
    layer = "relu-layer name=a dim=8 input=Append(-1,0,1,ReplaceIndex(ivector, t, 0))"
    nnet = layer_net(layer, inputs)
    assert to_torch(nnet, tmp_path).config["ivector_dim"] == 3
    assert_equals(model_of(tmp_path), nnet, ivector=np.float32([0.5, -1, 2]))


COMPONENTS = {
    "scale": "type=PerElementScaleComponent dim=6",
    "offset": "type=PerElementOffsetComponent dim=6 param-stddev=1",
    "natural": "type=NaturalGradientPerElementScaleComponent dim=6",
    "both": "type=ScaleAndOffsetComponent dim=6 block-dim=3",
    "blocks": "type=BlockAffineComponent input-dim=6 output-dim=4 num-blocks=2",
    "repeats": "type=RepeatedAffineComponent input-dim=6 output-dim=4 num-repeats=2",
    "softmax": "type=SoftmaxComponent dim=6",
    "renorm": "type=NormalizeComponent input-dim=6 block-dim=3 add-log-stddev=true target-rms=0.5",
    "batch_norm": "type=BatchNormComponent dim=6 block-dim=2 target-rms=0.7",
    "dropout": "type=DropoutComponent dim=6 dropout-proportion=0.3",
    "product": "type=ElementwiseProductComponent input-dim=6 output-dim=3",
    "sum_block": "type=SumBlockComponent input-dim=6 output-dim=2 scale=0.5",
    "sum_group": "type=SumGroupComponent sizes=1,2,3",
    "permute": "type=PermuteComponent column-map=5,0,1,4,3,2",
    "pnorm": "type=PnormComponent input-dim=6 output-dim=2",
    "tdnn": "type=TdnnComponent input-dim=6 output-dim=4 time-offsets=-2,0,3",
}


def component_net(component, source="input", more=""):
    text = f"input-node name=input dim=6\ncomponent name=c {component}\n{more}"
    text += f"component-node name=c component=c input={source}\noutput-node name=output input=c\n"
    return with_statistics(Nnet.from_config_text(text, 3), 3)


@pytest.mark.parametrize("name", COMPONENTS)
def test_components_and_their_way_back(name, tmp_path):
    nnet = component_net(COMPONENTS[name])
    nnet.write(tmp_path / "a.raw")
    folder = to_torch(tmp_path / "a.raw", tmp_path / "m").folder
    module = module_of(folder)
    model = module.load(folder)
    assert_equals(model, nnet)
    changed(module, model, folder)
    found = weights_from_torch(folder, tmp_path / "a.raw", tmp_path / "b.raw")
    assert found == (["c"] if model.state_dict() else [])
    assert_equals(model, Nnet.read(tmp_path / "b.raw"))


@pytest.mark.parametrize(
    "source",
    [
        "Scale(0.5, Sum(input, Offset(input, 2)))",
        "Sum(Const(1.5, 6), Offset(input, -1))",
        "IfDefined(input)",
        "Failover(input, Offset(input, 1))",
    ],
)
def test_descriptors(source, tmp_path):
    nnet = component_net("type=TanhComponent dim=6", source)
    to_torch(nnet, tmp_path)
    assert_equals(model_of(tmp_path), nnet)


def test_one_component_in_two_places(tmp_path):
    more = "component-node name=d component=c input=Append(Offset(input, -1), input)\n"
    nnet = component_net(
        "type=AffineComponent input-dim=12 output-dim=6", "Append(Offset(d, -3), d)", more
    )
    made = to_torch(nnet, tmp_path)
    assert made.source.count("nn.Conv1d(") == 1
    assert_equals(model_of(tmp_path), nnet)


def test_several_outputs(tmp_path):
    text = xconfig_to_config(
        "input dim=6 name=input\nrelu-layer name=a dim=4 input=Append(-1,0)\n"
        "output-layer name=output dim=3 param-stddev=1\n"
        "output-layer name=output-xent dim=2 input=a param-stddev=1\n"
    )
    nnet = Nnet.from_config_text(text, 0)
    made = to_torch(nnet, tmp_path)
    assert made.config["outputs"] == {"output": 3, "output-xent": 2}
    found = model_of(tmp_path)(torch.randn(2, 5, 6))
    assert {name: tuple(x.shape) for name, x in found.items()} == {
        "output": (2, 5, 3),
        "output-xent": (2, 5, 2),
    }
    done = subprocess.run([sys.executable, tmp_path / "check.py"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("equal") == 4, done.stdout + done.stderr


def test_the_check_script_tells_a_difference(tmp_path, monkeypatch, capsys):
    to_torch(component_net(COMPONENTS["scale"]), tmp_path)
    model = model_of(tmp_path)
    with torch.no_grad():
        model.c.scale += 0.01
    module_of(tmp_path).save(model, tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    assert runpy.run_path(str(tmp_path / "check.py"))["main"]() == 1
    monkeypatch.delitem(sys.modules, "model")
    assert "NOT EQUAL" in capsys.readouterr().out


def test_dropout_in_training(tmp_path):
    to_torch(component_net(COMPONENTS["dropout"]), tmp_path)
    x = torch.ones(1, 400, 6)
    found = model_of(tmp_path).train()(x)
    assert set(found.unique().tolist()) == {0.0, 1.0} and abs(float(found.mean()) - 0.7) < 0.05
    shared = "type=GeneralDropoutComponent dim=6 block-dim=3 dropout-proportion=0.5 time-period=4"
    to_torch(component_net(shared), tmp_path)
    found = model_of(tmp_path).train()(x)[0]
    assert set(found.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(found[:, :3], found[:, 3:]) and torch.equal(found[::4], found[3::4])


def test_what_has_no_form_is_named_at_once(tmp_path):
    text = """
    input-node name=input dim=6
    input-node name=other dim=6
    component name=c type=DistributeComponent input-dim=6 output-dim=3
    component-node name=c component=c input=Sum(input, other)
    output-node name=output input=c
    """
    told = (
        r"input 'other': only 'input' and 'ivector'.*; 'c': DistributeComponent reads .* another x"
    )
    with pytest.raises(NotInTorchError, match=told):
        to_torch(Nnet.from_config_text(text, 0), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_an_untrained_network_is_refused(tmp_path):
    text = xconfig_to_config(
        "input dim=6 name=input\nrelu-batchnorm-layer name=a dim=4\noutput-layer name=output dim=3"
    )
    with pytest.raises(FormatError, match="not trained"):
        to_torch(Nnet.from_config_text(text, 0), tmp_path)


def test_options_are_checked(tmp_path):
    nnet = component_net(COMPONENTS["scale"])
    with pytest.raises(OpscopeError, match="there is no output 'x'; there are output"):
        to_torch(nnet, tmp_path, outputs=["x"])
    with pytest.raises(OpscopeError, match="not positive"):
        to_torch(nnet, tmp_path, frame_subsampling_factor=0)


def test_states_that_do_not_fit(tmp_path):
    from safetensors.torch import load_file, save_file

    original = tmp_path / "a.raw"
    component_net(COMPONENTS["both"]).write(original)
    to_torch(original, tmp_path / "m")
    state, path = load_file(tmp_path / "m/model.safetensors"), tmp_path / "m/model.safetensors"
    damages = {
        "'c.scale' is missing": {"c.offset": state["c.offset"]},
        "'more' is not known": state | {"more": torch.zeros(1)},
        r"'c.scale' is \[4\], not \[3\]": state | {"c.scale": torch.zeros(4)},
        "'c.scale' is not finite": state | {"c.scale": torch.full((3,), float("nan"))},
        "'c.scale' is int32": state | {"c.scale": torch.zeros(3, dtype=torch.int32)},
    }
    for message, damaged in damages.items():
        save_file(damaged, path)
        with pytest.raises(ShapeError, match=message):
            weights_from_torch(tmp_path / "m", original, tmp_path / "b.raw")
    save_file(state, path)
    with pytest.raises(OpscopeError, match="is the original"):
        weights_from_torch(tmp_path / "m", original, original)
    config = json.loads((tmp_path / "m/config.json").read_text())
    (tmp_path / "m/config.json").write_text(json.dumps(config | {"outputs": {"x": 3}}))
    with pytest.raises(FormatError, match="no output 'x'"):
        weights_from_torch(tmp_path / "m", original, tmp_path / "b.raw")
    assert not (tmp_path / "b.raw").exists()


def test_names_from_outside_write_no_code(tmp_path):
    nnet = component_net(COMPONENTS["scale"])
    path = tmp_path / 'a""" + print("x") + """.raw'
    nnet.write(path)
    source = to_torch(path, tmp_path / "m").source
    assert "print__x__" in source and 'print("' not in source and source.count('"""') == 10


def test_commands(tmp_path):
    component_net(COMPONENTS["both"]).write(tmp_path / "a.raw")
    folder, runner = str(tmp_path / "m"), CliRunner()
    done = runner.invoke(main, ["to-torch", str(tmp_path / "a.raw"), folder])
    assert done.exit_code == 0 and "6 parameters" in done.output, done.output
    files = ["check.py", "check.safetensors", "config.json", "model.py", "model.safetensors"]
    assert sorted(each.name for each in Path(folder).iterdir()) == files
    arguments = ["from-torch", folder, str(tmp_path / "a.raw"), str(tmp_path / "b.raw")]
    done = runner.invoke(main, arguments)
    assert done.exit_code == 0 and "0 components have new weights" in done.output, done.output


def test_torch_is_not_imported():
    code = "import sys, opscope; opscope.to_torch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
