"""Batched x-vectors, and posteriors by denominator graphs: what Kaldi's programs write.

`kaldi_means_and_posteriors.json` tells how its numbers were computed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kaldi_models import call_main, done
from opscope.kaldi.tables.tables import TableWriter, read_table

MADE = json.loads(Path(__file__).with_name("kaldi_means_and_posteriors.json").read_text())


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("xvector.raw").write_text(MADE["xvector_network"])
    Path("chain.raw").write_text(MADE["chain_network"])
    Path("den.fst").write_text(MADE["graph"])
    with TableWriter("ark:feats.ark", "matrix") as writer:
        for key, rows in MADE["features"].items():
            writer.write(key, np.array(rows, np.float32))


@pytest.mark.parametrize(
    ("program", "models", "kind", "wanted"),
    [
        (
            ("nnet3-xvector-compute-batched", "--chunk-size=20", "--batch-size=3"),
            ("xvector.raw",),
            "vector",
            "xvectors",
        ),
        (
            ("nnet3-chain-compute-post", "--frames-per-chunk=20"),
            ("chain.raw", "den.fst"),
            "matrix",
            "posteriors",
        ),
    ],
)
def test_what_programs_write(program, models, kind, wanted) -> None:
    done(call_main(*program, *models, "ark:feats.ark", "ark:out.ark"))
    found = dict(read_table("ark:out.ark", kind))
    assert list(found) == list(MADE[wanted])
    for key, values in MADE[wanted].items():
        np.testing.assert_allclose(found[key], values, rtol=1e-5, atol=1e-5)
