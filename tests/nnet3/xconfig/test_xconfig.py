"""xconfig to config: the lines Kaldi's own scripts write for the same layers, as networks too.

The expected lines in `golden/xconfig` are those of Kaldi's scripts, without comments and with runs
of spaces made one; dimensions are whole numbers, which Kaldi's `cell-dim / 4` no longer gives.
"""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from kaldi_data import need
from opscope.framework.base.errors import FormatError, SaveError
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.matrix_io import read_matrix
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.xconfig import basic, layer_types, xconfig_to_config, xconfig_to_configs

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "xconfig"
CASES = sorted(GOLDEN.glob("*.xconfig"))
FRONT = "input name=input dim=8\n"
BACK = "output-layer name=output dim=3\n"

case = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)


def expected(path: Path, config: str) -> str:
    """What Kaldi writes. There is no file for a `ref` equal to `final`, nor for no `init`."""
    file = path.with_suffix(f".{config}.config")
    if not file.exists():
        return expected(path, "final") if config == "ref" else ""
    return file.read_text(encoding="utf-8")


def lines(*texts: str) -> list[str]:
    """The lines of the final config of the layers `texts` between an input and an output."""
    source = FRONT + "".join(f"{text}\n" for text in texts) + BACK
    return xconfig_to_config(source).splitlines()


def input_of(descriptor: str) -> str:
    """The config text of `descriptor`, written after two layers a and b of 8 columns."""
    line = lines(*(f"no-op-component name={n}" for n in ("a", "b", f"c input={descriptor}")))[6]
    return line.removeprefix("component-node name=c component=c input=")


@case
@pytest.mark.parametrize("config", ["final", "ref", "init"])
def test_lines_are_kaldis(path, config):
    assert xconfig_to_config(path, config) == expected(path, config)


def test_every_layer_type_is_among_the_cases():
    words = {line.split(" ")[0] for path in CASES for line in path.read_text().splitlines()}
    assert len(layer_types()) == 70
    assert set(layer_types()) <= words


@case
def test_the_lines_make_a_network(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    configs = xconfig_to_configs(path)
    configs.write(tmp_path)
    Nnet.from_configs(["ref.config"], rng=0).check()
    if configs.init:
        assert [node.name for node in Nnet.from_configs(["init.config"]).outputs()] == ["output"]


@pytest.mark.parametrize("name", ["cnn", "lstmp", "stats", "tdnn", "tdnnf"])
def test_trained_networks_have_the_structure_of_their_xconfig(name, tmp_path, monkeypatch):
    folder = need("trained", name)
    written = (folder / "final.config").read_text(encoding="utf-8").splitlines()
    configs = xconfig_to_configs(folder / "network.xconfig")
    kaldis = [" ".join(line.split()) for line in written if line and not line.startswith("#")]
    assert configs.final.splitlines() == kaldis

    monkeypatch.chdir(tmp_path)
    configs.write(tmp_path)
    if (folder / "lda.mat").exists():
        shutil.copy(folder / "lda.mat", tmp_path)
    nnet, trained = Nnet.from_configs(["final.config"], rng=0), Nnet.read(folder / "model.raw")
    assert nnet.config_lines() == trained.config_lines()
    assert nnet.node_dims() == trained.node_dims()
    assert nnet.num_parameters == trained.num_parameters


def test_the_cosine_transform_is_kaldis(tmp_path, monkeypatch):
    folder = need("trained", "tdnnf")
    monkeypatch.chdir(tmp_path)
    xconfig_to_configs(folder / "network.xconfig").write(tmp_path)
    paths = "idct.mat", folder / "idct.mat"
    mine, kaldis = (read_matrix(Reader(path), np.float64) for path in paths)
    np.testing.assert_allclose(mine, kaldis, rtol=0, atol=1e-15)


def test_the_cosine_transform_undoes_the_cosine_transform():
    text = "idct-layer name=idct affine-transform-file=m cepstral-lifter={}\n"
    plain, liftered = (
        xconfig_to_configs(FRONT + text.format(lifter) + BACK).transforms["m"] for lifter in (0, 22)
    )
    assert plain.shape == (8, 9)
    np.testing.assert_allclose(plain[:, :8] @ plain[:, :8].T, np.eye(8), atol=1e-14)
    assert not plain[:, 8].any()
    lifter = [1 + 11 * math.sin(math.pi * k / 22) for k in range(8)]
    np.testing.assert_allclose(liftered[:, :8] * lifter, plain[:, :8], atol=1e-14)


def test_transforms_are_made_when_they_are_asked_for(monkeypatch):
    made = []
    monkeypatch.setattr(basic, "idct_matrix", lambda *shape: made.append(shape))
    text = "input dim=4096 name=i\nidct-layer name=l dim=4096 affine-transform-file=m\n"
    configs = xconfig_to_configs(text + "output-layer name=output dim=3\n")
    assert list(configs.transforms) == ["m"] and not made
    assert configs.transforms["m"] is None and made == [(4096, 4096, 22.0)]


def test_files_are_written_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    configs = xconfig_to_configs(GOLDEN / "front.xconfig")
    configs.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "final.config",
        "front_idct.mat",
        "init.config",
        "ref.config",
    ]
    assert (tmp_path / "final.config").read_text() == configs.final
    matrix = read_matrix(Reader(tmp_path / "front_idct.mat"), np.float64)
    np.testing.assert_array_equal(matrix, configs.transforms["front_idct.mat"])
    with pytest.raises(SaveError, match="nowhere"):
        configs.write(tmp_path / "nowhere")


def test_text_and_path_give_the_same():
    path = GOLDEN / "single.xconfig"
    assert xconfig_to_config(path.read_text()) == xconfig_to_config(str(path))


def test_lines_end_in_any_way_and_comments_are_left_out():
    text = (
        "# first\r\ninput\tname=input  dim=8 # 8 columns\r\n\r\noutput-layer dim=3 name=output\r\n"
    )
    assert xconfig_to_config(text) == xconfig_to_config(FRONT + BACK)


def test_dimensions_default_to_the_inputs():
    default = lines("relu-layer name=a", "gru-layer name=b")
    assert default == lines("relu-layer name=a dim=-1", "gru-layer name=b cell-dim=-1")
    assert default == lines("relu-layer name=a dim=8", "gru-layer name=b cell-dim=8")


def test_quotes_keep_equals_signs():
    found = lines('affine-layer name=a ng-affine-options="rank-in=3  rank-out=4" dim=5')
    assert found[1].endswith("l2-regularize=0.0 rank-in=3 rank-out=4")


@pytest.mark.parametrize(
    ("written", "config"),
    [
        ("[-1]", "b"),
        ("[-2]", "a"),
        ("[ -3 ]@2", "Offset(input, 2)"),
        ("0", "b"),
        ("-4", "Offset(b, -4)"),
        ("a@0", "a"),
        ("a@-1", "Offset(a, -1)"),
        ("Offset(a,0)", "Offset(a, 0)"),
        ("Offset( a , -1 , 2 )", "Offset(a, -1, 2)"),
        ("Append(-1,0, a@+1)", "Append(Offset(b, -1), b, Offset(a, 1))"),
        ("Sum(a,[-1],input)", "Sum(a, b, input)"),
        ("Switch(a,b)", "Switch(a, b)"),
        ("Failover(Offset(a,3), b)", "Failover(Offset(a, 3), b)"),
        ("IfDefined(Round(b,3))", "IfDefined(Round(b, 3))"),
        ("ReplaceIndex(input, t, 0)", "ReplaceIndex(input, t, 0)"),
        ("Scale(2,a)", "Scale(2.0, a)"),
        ("Scale(-1e-3,a)", "Scale(-0.001, a)"),
        ("Append(Const(0.5,500),a)", "Append(Const(0.5, 500), a)"),
    ],
)
def test_short_forms_of_inputs(written, config):
    assert input_of(written) == config


def test_outputs_inside_a_layer_may_be_used():
    layers = [
        "lstmp-layer name=m cell-dim=8",
        "no-op-component name=a input=m.c_t",
        "fast-lstmp-layer name=f cell-dim=8",
        "no-op-component name=b input=[-1].c",
        "opgru-layer name=g cell-dim=8",
        "no-op-component name=c input=g.h_t",
        "output-layer name=other dim=4",
        "no-op-component name=d input=Append(other.affine, other.log-softmax)",
    ]
    found = lines(*layers)
    assert "component name=a type=NoOpComponent dim=8" in found
    assert "component-node name=b component=b input=f.c" in found
    assert "component name=c type=NoOpComponent dim=8" in found
    assert "component name=d type=NoOpComponent dim=8" in found
    Nnet.from_config_text("\n".join(found), rng=0)


def test_the_cell_of_a_fast_lstm_gets_a_node_once_it_is_used():
    layer = "fast-lstm-layer name=f cell-dim=8"
    node = "dim-range-node name=f.c input-node=f.lstm_nonlin dim-offset=0 dim=8"
    assert node not in lines(layer)
    found = lines(layer, "no-op-component name=a input=f.c", "no-op-component name=b input=f.c@-1")
    assert found.count(node) == 1
    Nnet.from_config_text("\n".join(found), rng=0)


def test_names_with_dots():
    found = lines("no-op-component name=a.b", "no-op-component name=c input=a.b")
    assert found[4] == "component-node name=c component=c input=a.b"


def test_layers_may_be_added_to_an_existing_network():
    text = "relu-layer name=new dim=4 input=Append(-1,0)\n" + BACK
    existing = {"tdnn1.affine": 6, "output": 3}
    with pytest.raises(FormatError, match="no layer before"):
        xconfig_to_config(text, existing=existing)
    text = text.replace("Append(-1,0)", "Append(tdnn1.affine@-1,tdnn1.affine)")
    found = xconfig_to_config(text, existing=existing).splitlines()
    start = (
        "component name=new.affine type=NaturalGradientAffineComponent input-dim=12 output-dim=4"
    )
    assert found[0].startswith(start)
    assert found[-1] == "output-node name=output input=output.log-softmax objective=linear"


def test_unknown_config_name():
    with pytest.raises(FormatError, match="none of init, ref, final"):
        xconfig_to_config(FRONT + BACK, "first")
