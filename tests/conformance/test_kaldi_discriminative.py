"""Examples, objectives and derivatives of Kaldi's `nnet3-discriminative-*` programs.

`kaldi_discriminative.json` tells how its numbers were computed, and how it is laid out.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kaldi_models import call_main, done
from opscope.nnet3.network.nnet import Nnet

SETS = json.loads(Path(__file__).with_name("kaldi_discriminative.json").read_text())["sets"]


@pytest.fixture(params=SETS, ids=[each["name"] for each in SETS])
def given(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    for name, text in request.param["files"].items():
        Path(name).write_text(text)
    return request.param


def test_examples(given: dict[str, Any]) -> None:
    done(
        call_main(
            *("nnet3-discriminative-get-egs", "--compress=false", *given["getting"]),
            *("m.mdl", "ark:feats", "ark:lat", "ark:ali", "ark,t:ours"),
        )
    )
    assert Path("ours").read_text() == given["files"]["egs"]
    arguments = "--minibatch-size=1:64", "ark:egs", "ark,t:joined"
    done(call_main("nnet3-discriminative-merge-egs", *arguments))
    assert Path("joined").read_text() == given["files"]["merged"]


def test_objectives_and_derivatives(given: dict[str, Any]) -> None:
    for run in given["runs"]:
        flags = [f"--{name}={value}" for name, value in run["options"].items()]
        objf = [flag for flag in flags if "apply-deriv-weights" not in flag]
        _, _, told = call_main("nnet3-discriminative-compute-objf", *objf, "m.mdl", "ark:merged")
        criterion = run["options"]["criterion"]
        for output, wanted in run["objective"].items():
            line = re.search(rf"Overall {criterion} objective for '{output}' is (.*) per", told)
            assert line, told
            found = [float(part) for part in line[1].split(" + ")]
            if criterion == "mmi" and output.endswith("-xent"):
                found = [-found[0]]  # Kaldi takes it for a denominator
            np.testing.assert_allclose(found, wanted[: len(found)], atol=1e-4)
        train = ("nnet3-discriminative-train", "--max-param-change=0", *flags)
        done(call_main(*train, "m.mdl", "ark:merged", "ours.raw"))
        components = Nnet.read("ours.raw").components
        for name, wanted in run["trained"].items():
            part = components[name]
            mine = np.column_stack([part.linear_params, part.bias_params])
            np.testing.assert_allclose(mine, wanted, atol=1e-4, err_msg=str(run["options"]))
