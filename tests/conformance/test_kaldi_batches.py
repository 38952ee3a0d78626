"""Minibatches of chunks: outputs and counts of Kaldi's `nnet3-compute-batch`.

`kaldi_batches.json` tells how its numbers were computed, and how it is laid out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3 import BatchComputer, BatchOptions, Utterance
from opscope.python_api.cli.main import main

CASES = json.loads(Path(__file__).with_name("kaldi_batches.json").read_text())["cases"]
_NAMES = {
    "minibatch_size": "chunks_per_batch",
    "edge_minibatch_size": "edge_chunks_per_batch",
    "partial_minibatch_factor": "partial_batch_factor",
}


def computer_of(case: dict[str, Any], folder: Path) -> BatchComputer:
    path = folder / "net.raw"
    path.write_text(case["network"])
    given = {name.replace("-", "_"): value for name, value in case["options"].items()}
    for other in ("apply_exp", "online_ivector_period"):
        given.pop(other, None)
    if "ensure_exact_final_context" in given:
        given["ensure_exact_final_context"] = True
    options = {_NAMES.get(name, name): value for name, value in given.items()}
    return BatchComputer(path, BatchOptions(**options))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_outputs_and_minibatches(case: dict[str, Any], tmp_path: Path) -> None:
    computer = computer_of(case, tmp_path)
    period = case["options"].get("online-ivector-period", 0)
    ivectors, online = (
        {key: np.array(value, np.float32) for key, value in case.get(name, {}).items()}
        for name in ("ivectors", "online_ivectors")
    )
    listed = [
        Utterance(key, np.array(rows, np.float32), ivectors.get(key), online.get(key), period)
        for key, rows in case["features"].items()
    ]
    found = list(computer.compute_all(listed))
    assert [key for key, _ in found] == list(case["outputs"])
    for key, matrix in found:
        scores = np.exp(matrix) if "apply-exp" in case["options"] else matrix
        np.testing.assert_allclose(scores, case["outputs"][key], rtol=1e-5, atol=1e-5)
    told = [
        f"{shape.input_frames}:{shape.output_frames}*{size}={count.done}"
        f"({100 * count.chunks // (size * count.done)}%)"
        for (shape, size), count in computer.counts.items()
    ]
    assert sorted(told) == case["minibatch_stats"]


def test_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    case = next(case for case in CASES if case["name"] == "both ways subsampled")
    computer_of(case, tmp_path)
    with TableWriter("ark:feats.ark", "matrix") as writer:
        for key, rows in case["features"].items():
            writer.write(key, np.array(rows, np.float32))
    options = [f"--{name}={value}" for name, value in case["options"].items()]
    arguments = ["nnet3-compute-batch", *options, "net.raw", "ark:feats.ark", "ark:out.ark"]
    main(arguments, standalone_mode=False)
    found = dict(read_table("ark:out.ark", "matrix"))
    assert list(found) == list(case["outputs"])
    for key, matrix in found.items():
        np.testing.assert_allclose(matrix, case["outputs"][key], rtol=1e-5, atol=1e-5)
    told = capfd.readouterr().err
    assert f"Did {case['tasks']} tasks in {case['minibatches']} minibatches" in told
    assert told.index("Done ") < told.index("Minibatch stats: ")
