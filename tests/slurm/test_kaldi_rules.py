"""The rules of training by jobs beside Kaldi's own functions, from a given copy of Kaldi."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from kaldi_source import missing, unpack

from opscope.nnet3.training.schedule import Schedule, dropout_edits, halved

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
ASK = """
import json, sys
sys.path.insert(0, "steps")
import libs.nnet3.train.common as kaldi
found = []
for epochs, archives, copies, first, last, step, rate, end, most in json.load(sys.stdin):
    total = int(epochs * archives * copies)
    count = int(total * 2 / (first + last))
    done, rows = 0, []
    for i in range(count):
        jobs = kaldi.get_current_num_jobs(i, count, first, step, last)
        lr = kaldi.get_learning_rate(i, jobs, count, done, total, rate, end)
        share = min(done / total, 1)
        edits = kaldi.get_dropout_edit_string("0.1,0.5@0.3,0 lstm*=0,0.2,0", share, i)
        rows.append([jobs, lr, done, edits])
        done += jobs
    combined = kaldi.get_model_combine_iters(count, epochs, archives * copies, most, last)
    found.append([rows, sorted(combined | {count})])
print(json.dumps([found, [kaldi.halve_minibatch_size_str(x) for x in ("64,1:9", "8=4/9=1,2:3")]]))
"""


def test_schedules(tmp_path):
    folder = unpack(tmp_path)
    rng = np.random.default_rng(0)
    cases = []
    for _ in range(60):
        first, last = (int(n) for n in rng.integers(1, 9, 2))
        archives, copies = int(rng.integers(max(first, last), 40)), int(rng.integers(1, 9))
        rates = sorted(float(rate) for rate in 10 ** rng.uniform(-5, -2, 2))[::-1]
        epochs = float(rng.choice([1, 2.5, 4]))
        jobs = [first, last, int(rng.integers(1, 4))]
        cases.append([epochs, archives, copies, *jobs, *rates, int(rng.integers(2, 30))])
    command = [sys.executable, "-W", "ignore", "-c", ASK]
    text = json.dumps(cases)
    done = subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, halves = json.loads(done.stdout)
    for case, (rows, combined) in zip(cases, found, strict=True):
        made = Schedule(*case[:-1])
        assert made.iterations == len(rows)
        for i, (jobs, rate, processed, edits) in enumerate(rows):
            assert (made.jobs(i), made.processed(i)) == (jobs, processed)
            assert made.learning_rate(i) == pytest.approx(rate, rel=1e-12)
            told = dropout_edits("0.1,0.5@0.3,0 lstm*=0,0.2,0", made.share(i))
            assert numbers(told) == pytest.approx(numbers(edits), abs=1e-12)
        assert made.combined(case[-1]) == combined
    assert halves == [halved("64,1:9"), halved("8=4/9=1,2:3")]


def numbers(edits: str) -> list[float]:
    """The proportions in edit directives."""
    return [float(found) for found in re.findall(r"proportion=([-+0-9.e]+)", edits)]
