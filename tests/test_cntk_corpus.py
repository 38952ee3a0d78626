"""The benchmark over a snapshot of CNTK, on a small one: what it parses, builds and compares."""

import os
import subprocess
import sys
from pathlib import Path

import opscope

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "cntk_corpus.py"

CONFIG = """command = Train:Edit
Train = [
    action = train ; modelPath = "$RunDir$/a.dnn"
    NDLNetworkBuilder = [ networkDescription = "$ConfigDir$/net.ndl" ]
]
Edit = [ action = edit ; editPath = "$ConfigDir$/edit.mel" ]
"""
NDL = """features = Input($dim$, tag=feature)
labels = Input(2, tag=label)
W = Parameter(2, $dim$) ; z = Times(W, features)
ce = CrossEntropyWithSoftmax(labels, z, tag=criterion)
"""
LOG = r"""
C:\cntk.exe  configFile=C:\jobs\Tests\EndToEndTests\Small/a.cntk  dim=3  RunDir=C:\Temp\x
MPI Rank 0: 12/15/2016 08:27:52: # Train command (train action)      #
MPI Rank 0: 12/15/2016 08:27:52: Model has NODES nodes. Using CPU.
MPI Rank 0: Validating --> W = LearnableParameter() :  -> [2 x 3]
MPI Rank 0: Validating --> z = Times (W, features) : [2 x 3], [3 x *] -> [2 x *]
MPI Rank 1: Model has 77 nodes. Using CPU.
MPI Rank 0: Training 6 parameters in 1 out of 1 parameter tensors
"""


def run(folder, nodes, *options, config=CONFIG):
    small = folder / "Tests" / "EndToEndTests" / "Small"
    small.mkdir(parents=True, exist_ok=True)
    (small / "a.cntk").write_text(config)
    (small / "net.ndl").write_text(NDL)
    (small / "edit.mel").write_text('m = LoadModel("$RunDir$/a.dnn")\ny = Tanh(z)\nRemove(ce)\n')
    (small / "lib.bs").write_text("f(x) = x + 1\n")
    (small / "baseline.cpu.txt").write_text(LOG.replace("NODES", str(nodes)))
    parent = str(Path(opscope.__file__).resolve().parent.parent)
    environment = {**os.environ, "PYTHONPATH": parent}
    done = subprocess.run(
        [sys.executable, SCRIPT, folder, *options], capture_output=True, text=True, env=environment
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def checked(folder):
    done = run(folder, 5, "--check")
    return [line.strip() for line in done if "DataDir" not in line and "OutputDir" not in line]


def test_a_small_snapshot_is_checked(tmp_path):
    lines = checked(tmp_path)
    assert "4 files" in lines[-1] and "1 absent file" not in lines[-1]
    assert [line for line in lines if line.startswith("true error")] == [
        line for line in lines if ":Train:SGD" in line or ":Train:reader" in line
    ]
    assert not [line for line in lines if line.startswith("error")]
    text = "SGD = [ maxEpochs = x ; learningRatesPerMB = 1 ] ; reader = [ file = n.ctf ; input = ["
    text += "features = [ dim = 3 ; format = dense ] ; labels = [ dim = 2 ; format = dense ] ] ]"
    config = CONFIG.replace("action = train ;", f"action = train ; {text} ;")
    lines = run(tmp_path, 5, "--check", config=config)
    [wrong] = [line for line in lines if line.strip().startswith("error")]
    assert "invalid input string 'x' in a.cntk:Train:SGD:maxEpochs" in wrong
    [absent] = [line for line in lines if line.strip().startswith("absent file")]
    assert "'n.ctf'" in absent


def test_a_small_snapshot(tmp_path):
    lines = run(tmp_path, 5)
    assert lines[-1].startswith("4 of 4 files parsed; 2 of 2 networks built (100.0%)")
    assert "1 compared with logs (2 nodes), files with differences: 0" in lines[-1]
    lines = run(tmp_path, 6)
    assert "      differs: Train: nodes: 5, logged 6" in lines
