"""A corpus scored on a real Slurm of one node; skipped where there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from one_node import missing, one_node_slurm

from score_runs import environment, features, run, write_nnet3, write_table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"no Slurm: {missing()}"),
]


def test_shards_on_slurm(tmp_path, monkeypatch):
    write_nnet3(tmp_path / "final.raw")
    write_table(f"ark,scp:{tmp_path}/feats.ark,{tmp_path}/feats.scp", features(40))
    assert run(tmp_path, "final.raw", "feats.scp", "ark:one.ark")[0] == 0
    with one_node_slurm(tmp_path / "slurm") as variables:
        for name, value in (environment() | variables).items():
            monkeypatch.setenv(name, value)
        words = ("final.raw", "feats.scp", "ark:o.ark", "--shards=2", "--on=slurm.pl")
        code, told = run(tmp_path, *words)
    assert code == 0, told
    assert "40 utterances in 2 shards; on Slurm" in told
    assert (tmp_path / "o.ark").read_bytes() == (tmp_path / "one.ark").read_bytes()
