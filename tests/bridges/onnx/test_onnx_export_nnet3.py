"""`to_onnx` of nnet3 networks: checked, whole and as streams, from files and objects."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from opscope.bridges.inference.form import ExportError
from opscope.bridges.onnx.from_nnet3.streams import Stream
from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.nnet3 import Nnet, xconfig_to_config
from opscope.python_api.cli.main import main

pytest.importorskip("onnxruntime")

LAYERS = """
input name=ivector dim=4
input name=input dim=6
relu-layer name=a dim=8 input=Append(-1,0,2,ReplaceIndex(ivector,t,0))
fast-lstmp-layer name=b cell-dim=6 recurrent-projection-dim=3 non-recurrent-projection-dim=3
output-layer name=output dim=5 param-stddev=0.5
"""


@pytest.fixture
def nnet():
    return Nnet.from_config_text(xconfig_to_config(LAYERS), 0)


@pytest.mark.parametrize("options", [{}, {"streaming": True}, {"frame_subsampling_factor": 3}])
def test_checked(nnet, tmp_path, options):
    path = tmp_path / "m.onnx"
    check = opscope.to_onnx(nnet, path, **options)
    assert check.error < 1e-5 and check.cases == 3
    model = opscope.from_onnx(path)
    assert {"input", "ivector"} <= {info.name for info in model.inputs}
    if "streaming" in options:
        assert Stream.of(model.metadata).caches


def test_a_wrong_stream_is_found(nnet, tmp_path, monkeypatch):
    first = Stream.initial_caches

    def wrong(self, features):
        return {name: value + 1 for name, value in first(self, features).items()}

    monkeypatch.setattr(Stream, "initial_caches", wrong)
    with pytest.raises(ExportError, match="output 'output'.* an error of"):
        opscope.to_onnx(nnet, tmp_path / "m.onnx", streaming=True)
    assert not (tmp_path / "m.onnx").exists()


def test_command_with_real_inputs(nnet, tmp_path):
    nnet.write(str(tmp_path / "m.raw"))
    rng = np.random.default_rng(0)
    values = {"input": rng.normal(size=(1, 9, 6)), "ivector": rng.normal(size=4)}
    np.savez(tmp_path / "x.npz", **values)
    words = [str(tmp_path / "m.raw"), str(tmp_path / "m.onnx"), "--inputs", str(tmp_path / "x.npz")]
    done = CliRunner().invoke(main, ["to-onnx", *words, "--acoustic-scale", "0.5"])
    assert done.exit_code == 0, done.output
    assert "on 4 inputs" in done.output
    found = opscope.from_onnx(tmp_path / "m.onnx").run(
        {"input": values["input"].astype(np.float32), "ivector": values["ivector"][None]}
    )
    plain = opscope.nnet3.ChunkComputer(nnet).compute(values["input"][0], values["ivector"])
    np.testing.assert_allclose(found["output"][0], 0.5 * plain, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"outputs": "a"}, ExportError, "'output' is exported, not a"),
        ({"inputs": {"x": np.ones((3, 6))}}, OpscopeError, "'x' is none"),
        ({"inputs": {"input": np.ones((3, 6))}}, ShapeError, "iVector"),
        ({"inputs": {"input": np.ones(6), "ivector": np.ones(4)}}, ShapeError, r"\[frames, dim\]"),
        ({"int8": True, "streaming": True}, ExportError, "do not go together"),
    ],
)
def test_refused(nnet, tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        opscope.to_onnx(nnet, tmp_path / "m.onnx", **options)
    assert not list(tmp_path.iterdir())


def test_options_of_nnet3_are_refused_elsewhere(tmp_path):
    b = opscope.NetBuilder("n")
    b.fc(b.input("x", [-1, 3]), size=2, name="y")
    scope = opscope.Scope()
    b.initialize(scope)
    with pytest.raises(OpscopeError, match="'streaming' has a meaning for nnet3 networks alone"):
        opscope.to_onnx(b, tmp_path / "m.onnx", scope, outputs="y", streaming=True)


def test_the_folder_of_a_vosk_model(nnet, tmp_path):
    (tmp_path / "m" / "am").mkdir(parents=True)
    (tmp_path / "m" / "conf").mkdir()
    (tmp_path / "m" / "conf" / "model.conf").write_text("--beam=10\n--frame-subsampling-factor=3\n")
    nnet.write(str(tmp_path / "m" / "am" / "final.mdl"))
    done = CliRunner().invoke(main, ["to-onnx", str(tmp_path / "m"), str(tmp_path / "m.onnx")])
    assert done.exit_code == 0, done.output
    metadata = opscope.from_onnx(tmp_path / "m.onnx").metadata
    assert metadata["subsampling_factor"] == "3" and metadata["feat_dim"] == "6"
    assert metadata["acoustic_scale"] == "1.0" and metadata["priors_subtracted"] == "0"
    opscope.to_onnx(nnet, tmp_path / "m.onnx", acoustic_scale=0.5, priors=np.full(5, 0.2))
    metadata = opscope.from_onnx(tmp_path / "m.onnx").metadata
    assert metadata["acoustic_scale"] == "0.5" and metadata["priors_subtracted"] == "1"
    assert metadata["normalize_samples"] == "0" and metadata["vocab_size"] == "5"
    with pytest.raises(FormatError, match="a folder without am/final.mdl"):
        opscope.to_onnx(tmp_path / "m" / "conf", tmp_path / "x.onnx")


OTHER_INPUTS = """
input-node name=feats dim=4
input-node name=speaker dim=3
input-node name=input dim=2
component name=a type=AffineComponent input-dim=13 output-dim=6
component-node name=a component=a input=Append(Offset(feats,-1), feats, ReplaceIndex(speaker,t,0)\
, Offset(input, 2))
component name=r type=RectifiedLinearComponent dim=6
component-node name=r component=r input=a
component name=b type=AffineComponent input-dim=12 output-dim=3
component-node name=b component=b input=Append(Offset(r,-2), Offset(r, 3))
output-node name=output input=b
"""


@pytest.mark.parametrize("options", [{}, {"streaming": True}, {"frame_subsampling_factor": 3}])
def test_inputs_of_other_names(tmp_path, options):
    nnet = Nnet.from_config_text(OTHER_INPUTS, 0)
    rng = np.random.default_rng(1)
    shapes = {"feats": (11, 4), "speaker": 3, "input": (11, 2)}
    real = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    check = opscope.to_onnx(nnet, tmp_path / "m.onnx", inputs=real, **options)
    assert check.error < 1e-5 and check.cases == 4
    model = opscope.from_onnx(tmp_path / "m.onnx")
    assert set(shapes) == {info.name for info in model.inputs if "cache" not in info.name}
    if options:
        return
    fed = {name: array[None] for name, array in real.items()}
    found = model.run(fed)["output"][0]
    times = np.clip(np.arange(11)[:, None] + [-3, -2, 0, 2, 3, 5], 0, 10)
    w, bias = nnet.components["a"].linear_params, nnet.components["a"].bias_params
    sides = []
    for offset in (0, 3):  # frames before, now and ahead of each row that b reads
        before, now, ahead = times[:, offset : offset + 3].T if not offset else times[:, 3:].T
        sides.append((before, now, ahead))
    hidden = [
        np.maximum(
            np.concatenate(
                [
                    real["feats"][before],
                    real["feats"][now],
                    np.tile(real["speaker"], (11, 1)),
                    real["input"][ahead],
                ],
                axis=1,
            )
            @ w.T
            + bias,
            0,
        )
        for before, now, ahead in sides
    ]
    b = nnet.components["b"]
    wanted = np.concatenate(hidden, axis=1) @ b.linear_params.T + b.bias_params
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"feats": (5, 4), "input": (5, 2)}, "give 'speaker' with the inputs"),
        ({"feats": (5, 4), "input": (4, 2), "speaker": 3}, "different numbers of frames"),
        ({"feats": (5, 4), "speaker": 3}, "'input' is missing"),
        ({"feats": (5, 4), "speaker": 3, "input": (5, 2), "y": 3}, "'y' is none"),
    ],
)
def test_other_inputs_that_do_not_fit(tmp_path, given, message):
    nnet = Nnet.from_config_text(OTHER_INPUTS, 0)
    real = {name: np.zeros(shape, np.float32) for name, shape in given.items()}
    with pytest.raises(OpscopeError, match=message):
        opscope.to_onnx(nnet, tmp_path / "m.onnx", inputs=real)
    assert not list(tmp_path.iterdir())
