"""The benchmark that trains the configs of a CNTK snapshot on made data, on a small snapshot.

`OPSCOPE_CNTK_SOURCE` names a checkout of CNTK: a tenth of its configs are trained then.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import opscope

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "cntk_training.py"
SOURCE = os.environ.get("OPSCOPE_CNTK_SOURCE", "")

READER = """reader = [ readerType = "%s" ; %s ]"""
TEXT = """file = "$DataDir$/train.ctf" ; input = [ features = [ dim = 3 ; format = "dense" ]
    labels = [ dim = 2 ; format = "sparse" ] ]"""
IMAGES = """file = "$DataDir$/map.txt" ; features = [ width = 4 ; height = 4 ; channels = 3 ]
    labels = [ labelDim = 3 ]"""
SPEECH = """features = [ dim = 4 ; scpFile = "$DataDir$/a.scp" ]
    labels = [ mlfFile = "$DataDir$/a.mlf" ; labelDim = 5 ; labelMappingFile = "$DataDir$/s" ]"""
TRAIN = """command = Train
Train = [
    action = train ; modelPath = "$RunDir$/a.dnn" ; %s
    SimpleNetworkBuilder = [ layerSizes = 3:20:2 ; trainingCriterion = "CrossEntropyWithSoftmax"
        evalCriterion = "ClassificationError" ; layerTypes = "Sigmoid" ]
    SGD = [ maxEpochs = 500 ; epochSize = 100000 ; minibatchSize = 256 ; learningRatesPerMB = 0.2 ]
]
"""
TRAINED = TRAIN % (READER % ("CNTKTextFormatReader", TEXT))
CONFIGS = {
    "trained": TRAINED,
    "images": f"Images = [ {READER % ('ImageReader', IMAGES)} ]",
    "speech": f"Speech = [ {READER % ('HTKMLFReader', SPEECH)} ]",
    "unknown": TRAINED.replace("CNTKTextFormatReader", "NoSuchReader"),
}


def run(folder: Path, *options: str | Path) -> tuple[list[dict], int]:
    """The rows of a run, and its exit code."""
    table = folder / "table.json"
    parent = str(Path(opscope.__file__).resolve().parent.parent)
    done = subprocess.run(
        [sys.executable, SCRIPT, *options, "--json", table],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": parent},
    )
    assert table.exists(), done.stderr
    return json.loads(table.read_text()), done.returncode


def test_a_small_snapshot(tmp_path: Path) -> None:
    tests = tmp_path / "snapshot" / "Tests"
    tests.mkdir(parents=True)
    for name, text in CONFIGS.items():
        (tests / f"{name}.cntk").write_text(text)
    rows, code = run(tmp_path, tmp_path / "snapshot")
    by_name = {Path(row["config"]).stem: row for row in rows}
    assert "NoSuchReader" in by_name.pop("unknown")["error"] and code == 1
    assert len(by_name) == 3
    for row in by_name.values():
        [training] = row["commands"]
        assert not row["error"] and training["last"] < training["first"]
    assert sorted(path.name for path in tests.iterdir()) == [
        f"{name}.cntk" for name in sorted(CONFIGS)
    ]


@pytest.mark.skipif(not SOURCE, reason="OPSCOPE_CNTK_SOURCE names no checkout of CNTK")
def test_a_tenth_of_the_snapshot(tmp_path: Path) -> None:
    rows, code = run(tmp_path, SOURCE, "--every", "10")
    failed = {row["config"]: row["error"] or row["commands"] for row in rows}
    assert len(rows) > 10 and code == 0, failed
