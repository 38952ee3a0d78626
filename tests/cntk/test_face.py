"""What a user of CNTK does first: load a model, evaluate it, save it, run a config."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope import cntk
from opscope.cntk.network.initialize import initialize
from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError, VariableError


@pytest.fixture
def tagger() -> cntk.CntkNet:
    """h(t) = Tanh (W x(t) + h(t - 1)), and a criterion with labels."""
    network = cntk.build_network("""{
        x = Input {3} ; label = Input {2, tag = 'label'}
        W = ParameterTensor {2:3}
        h = Tanh (W * x + PastValue (2, h, defaultHiddenActivation = 0), tag = 'output')
        ce = SquareError (label, h, tag = 'criterion')
    }""")
    network.validate()
    initialize(network)
    return cntk.CntkNet(network)


def test_importing_the_face_loads_nothing_heavy() -> None:
    code = "import sys, opscope; opscope.cntk; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert set(cntk.__all__) <= set(dir(cntk))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cntk.nothing  # noqa: B018


class TestEval:
    def test_a_list_is_sequences_and_an_array_is_samples(self, tagger: Any) -> None:
        rows = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
        w = tagger.get("W")
        whole = np.zeros((5, 2), np.float32)
        for t in range(4):
            whole[t + 1] = np.tanh(rows[t] @ w.T + whole[t])
        first, second = tagger.eval({"x": [rows, rows[:1]]})["h"]
        np.testing.assert_allclose(first, whole[1:], rtol=1e-5)
        np.testing.assert_allclose(second, whole[1:2], rtol=1e-5)
        single = tagger.eval({"x": rows})["h"]
        np.testing.assert_allclose(single, np.tanh(rows @ w.T), rtol=1e-5)

    def test_whole_numbers_are_words(self, tagger: Any) -> None:
        words = np.array([2, 0, 1])
        (found,) = tagger.eval({"X": [words]}, "h")["h"]
        (dense,) = tagger.eval({"x": [np.eye(3)[words]]}, "h")["h"]
        np.testing.assert_allclose(found, dense, rtol=1e-6)

    def test_labels_are_needed_only_by_what_reads_them(self, tagger: Any) -> None:
        rows = np.ones((2, 3))
        tagger.eval({"x": rows})
        ce = tagger.eval({"x": rows, "label": np.zeros((2, 2))}, "ce")["ce"]
        assert ce.size == 1 and ce > 0
        with pytest.raises(ShapeError, match="label"):
            tagger.eval({"x": rows}, "ce")

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            ({"y": np.ones((2, 3))}, "the network has no input 'y'; it has label, x"),
            ({"lable": np.ones((2, 3))}, "no input 'lable' (did you mean label?)"),
            ({"x": np.ones((2, 4))}, "an array of [2, 4] is given; [rows, 3] is needed"),
            ({"x": [[0.5, 1, 2]]}, "a list holds one array for each sequence"),
            ({"x": [[3]]}, "there is no element 3 of 3"),
            ({"x": [[-1]]}, "there is no element -1 of 3"),
            ({"x": [[1], [[1, 2, 3]]]}, "some sequences are numbers of words"),
            ({"x": [[[1, 2], [3]]]}, "is no array"),
            ({"x": "abc"}, "holds <U3, not numbers"),
            ({"x": []}, "there is no sequence"),
            ({"x": np.float32(3)}, "an array of [] is given"),
        ],
    )
    def test_what_does_not_fit(self, tagger: Any, data: Any, words: str) -> None:
        with pytest.raises((ShapeError, VariableError)) as caught:
            tagger.eval(data)
        assert words in str(caught.value)

    def test_without_output_nodes(self, tagger: Any) -> None:
        tagger.network.set_property(tagger.network.find("h"), "output", False)
        with pytest.raises(VariableError, match="name the nodes"):
            tagger.eval({"x": np.ones((2, 3))})


def test_a_model_is_saved_and_loaded(tagger: Any, tmp_path: Path) -> None:
    tagger.set("W", np.full((2, 3), 0.25))
    tagger.save(tmp_path / "tagger.dnn")
    same = cntk.load_model(tmp_path / "tagger.dnn")
    assert (same.get("W") == 0.25).all()
    rows = np.ones((2, 3))
    np.testing.assert_array_equal(same.eval({"x": rows})["h"], tagger.eval({"x": rows})["h"])
    assert cntk.load_model(tmp_path / "tagger.dnn", dtype=np.float64).get("W").dtype == np.float64
    with pytest.raises(FormatError, match=r"no\.dnn: No such file"):
        cntk.load_model(tmp_path / "no.dnn")


def test_a_config_runs_from_python(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.cntk").write_text(
        "command = C ; C = [ action = edit ; CurLayer = 1 ; editPath = $Script$ ]\n"
    )
    script = 'm = CreateModel()\nx = Input(2, tag = feature)\nSaveModel(m, "m.dnn")'
    Path("a.mel").write_text(script)
    lines: list[str] = []
    cntk.run_config("configFile=a.cntk", "Script=a.mel", run=cntk.Run(say=lines.append))
    assert Path("m.dnn").exists() and lines[-1] == "COMPLETED.\n"
    with pytest.raises(OpscopeError, match="unknown action: nothing"):
        cntk.run_config(
            "configFile=a.cntk",
            "Script=a.mel",
            "C=[action=nothing]",
            run=cntk.Run(say=lines.append),
        )
