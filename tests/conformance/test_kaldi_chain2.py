"""Chain models of two languages: what Kaldi's nnet3-chain-train2 and nnet3-chain-combine2 make.

`kaldi_chain2.json` tells how its numbers were computed, and how it is laid out.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from kaldi_models import call_main, done
from opscope.nnet3.network.nnet import Nnet

MADE = json.loads(Path(__file__).with_name("kaldi_chain2.json").read_text())


def parameters(name: str) -> np.ndarray:
    return Nnet.read(name).vectorize()


def test_one_pass_and_its_combination(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("0.raw").write_text(MADE["network"])
    Path("examples").write_text(MADE["examples"])
    Path("den").mkdir()
    for language, graph in MADE["graphs"].items():
        Path(f"den/{language}.den.fst").write_text(graph)
    call = call_main(
        "nnet3-chain-train2", *MADE["options"], "0.raw", "den", "ark:examples", "1.raw"
    )
    done(call)
    found = re.findall(r"Overall average objective function for '(\S+)' is (\S+)", call[2])
    assert {name: float(value) for name, value in found} == pytest.approx(
        MADE["objectives"], abs=1e-5
    )
    trained = np.array(MADE["trained"])
    change = np.abs(trained - parameters("0.raw")).max()
    np.testing.assert_allclose(parameters("1.raw"), trained, atol=2e-4 * change)
    options = "--leaky-hmm-coefficient=0.1", "den", "1.raw", "0.raw", "ark:examples", "c.raw"
    call = call_main("nnet3-chain-combine2", *options)
    done(call)
    values = re.findall(r"objective function (?:using the last model )?is (\S+)", call[2])
    assert [float(value) for value in values] == pytest.approx(MADE["combining"], abs=1e-5)
    np.testing.assert_allclose(parameters("c.raw"), MADE["combined"], atol=2e-4 * change)
