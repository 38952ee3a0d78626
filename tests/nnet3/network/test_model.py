"""Acoustic models: the transition model is kept, contexts and priors are checked."""

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, ShapeError
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet

CONFIG = """
input-node name=input dim=3
component name=a type=AffineComponent input-dim=6 output-dim=4
component-node name=a component=a input=Append(Offset(input, -2), Offset(input, 1))
output-node name=output input=a
"""
TRANSITIONS = {
    True: b"<TransitionModel> \x04\x00\x01</TransitionModel> ",
    False: b"<TransitionModel> \n<Topology> \n1 2\n</TransitionModel> \n",
}


def model(binary=True):
    made = AmNnetSimple(Nnet.from_config_text(CONFIG, 0), TRANSITIONS[binary], binary)
    made.set_context()
    made.set_priors(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    return made


@pytest.mark.parametrize("binary", [True, False])
def test_files(tmp_path, binary):
    path = tmp_path / "final.mdl"
    model(binary).write(path)
    back = AmNnetSimple.read(path)
    assert back.transition_model == TRANSITIONS[binary]
    assert (back.left_context, back.right_context) == (2, 1)
    np.testing.assert_allclose(back.priors, [0.1, 0.2, 0.3, 0.4])
    back.write(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    assert Nnet.read(path).config_lines() == back.nnet.config_lines()


def test_the_form_of_the_transition_model_stays(tmp_path):
    with pytest.raises(ShapeError, match="which is binary"):
        model().write(tmp_path / "x", binary=False)
    assert not (tmp_path / "x").exists()


def test_info():
    lines = model().info().split("\n")
    assert lines[:8] == [
        "input-dim: 3",
        "ivector-dim: -1",
        "num-pdfs: 4",
        "prior-dimension: 4",
        "prior-sum: 1",
        "prior-min: 0.1",
        "prior-max: 0.4",
        "# Nnet info follows.",
    ]
    made = model()
    made.set_priors(np.zeros(0))
    assert "prior-sum" not in made.info()


def test_another_network():
    made = model()
    with pytest.raises(ShapeError, match="3 priors for an output of dimension 4"):
        made.set_priors(np.ones(3))
    made.set_nnet(Nnet.from_config_text(CONFIG.replace("output-dim=4", "output-dim=5")))
    assert made.priors.size == 0
    with pytest.raises(ShapeError, match="'input'"):
        made.set_nnet(Nnet.from_config_text(CONFIG.replace("name=output", "name=out")))


def test_refused_files(tmp_path):
    path = tmp_path / "final.mdl"
    model().write(path)
    data = path.read_bytes()
    for broken, what in (
        (data.replace(b"</TransitionModel>", b"</TransitionModeL>"), "no </TransitionModel>"),
        (data.replace(b"<LeftContext>", b"<LeftContexT>"), "<LeftContext> was expected"),
        (data.replace(b"<Priors> ", b"<Prior> "), "<Priors> was expected"),
        (data[:-16] + b"FV \x04\x00\x00\x00\x00", "."),
    ):
        path.write_bytes(broken)
        with pytest.raises(FormatError, match=what):
            AmNnetSimple.read(path)
    made = model(False)
    made.priors = np.ones(3, np.float32)
    made.write(path)
    with pytest.raises(FormatError, match="3 priors for an output of dimension 4 .byte"):
        AmNnetSimple.read(path)
    for end in range(2, len(data) - 1, 11):
        path.write_bytes(data[:end])
        with pytest.raises(FormatError):
            AmNnetSimple.read(path)
