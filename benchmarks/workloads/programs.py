"""Whole programs by the CPU time of their process: starts, first calls, a whole corpus."""

from __future__ import annotations

import functools
import pathlib
import sys
from collections.abc import Mapping

import numpy as np

from .onnx_models import vosk_model
from .workload import OURS, Workload, scratch

HERE = pathlib.Path(__file__).resolve().parents[1]
UTTERANCES = 300

_FIRST_WHOLE = """
import numpy as np
from opscope import nnet3
options = nnet3.ChunkOptions(frame_subsampling_factor=3)
nnet3.ChunkComputer({path!r}, options).compute(np.zeros((200, 40), 'f'), np.zeros(100, 'f'))
"""
_FIRST_STREAM = """
import numpy as np
from opscope import nnet3
options = nnet3.LoopedOptions(18, frame_subsampling_factor=3)
stream = nnet3.LoopedComputer({path!r}, options).stream()
while not len(stream.accept(np.zeros((18, 40), 'f'), np.zeros(100, 'f'))): pass
"""
# A user whose cache is empty trains a net of each sort for a step.
_FIRST_NETS = """
import os, tempfile, numpy as np
folder = tempfile.TemporaryDirectory()
os.environ["XDG_CACHE_HOME"] = folder.name
import opscope
def train(make, x, shape, **how):
    b, scope = opscope.NetBuilder("first"), opscope.Scope()
    out, label = make(b, b.input("x", shape, **how)), b.input("label", [-1], "int64")
    b.backward_from(b.mean(b.softmax_cross_entropy(out, label), name="loss"))
    b.add_optimization(0.1, "sgd")
    b.initialize(scope)
    feeds = dict(x=x, label=np.arange(len(x)))
    b.run(scope, opscope.OpContext(train=True), feed=feeds, fetch=["loss"])
train(lambda b, x: b.fc(b.relu(b.fc(x, 64)), 10), np.ones((8, 64), "f"), [-1, 64])
images = np.ones((8, 3, 32, 32), "f")
train(lambda b, x: b.fc(b.flatten(b.relu(b.conv2d(x, 16, 3))), 10), images, [-1, 3, 32, 32])
train(lambda b, x: b.fc(b.lstm(x, 32)[1][0], 10), [np.ones((9, 40), "f")] * 8, [-1, 40], levels=1)
"""
_RUNTIME_COMPUTE = """
import os, numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
session = onnxruntime.InferenceSession({path!r}, options)
with np.load({features!r}) as utterances:
    np.savez({output!r}, **{{
        key: session.run(['output'], {{'input': utterances[key][None]}})[0][0]
        for key in utterances.files}})
"""


@functools.cache
def corpus() -> tuple[pathlib.Path, pathlib.Path]:
    """A TDNN and features of 300 utterances of 2 to 12 s, written once."""
    import opscope
    from opscope import nnet3

    from .nnet3_nets import TDNN, count_statistics

    folder = scratch()
    nnet = nnet3.Nnet.from_config_text(nnet3.xconfig_to_config(TDNN), 0)
    count_statistics(nnet)
    nnet.write(folder / "tdnn.raw")
    rng = np.random.default_rng(0)
    lengths = rng.integers(200, 1200, UTTERANCES)
    rows = {f"u{i:03}": rng.standard_normal((n, 40), np.float32) for i, n in enumerate(lengths)}
    with nnet3.TableWriter(f"ark:{folder / 'feats.ark'}", "matrix") as writer:
        for key, matrix in rows.items():
            writer.write(key, matrix)
    np.savez(folder / "feats.npz", **rows)
    opscope.to_onnx(folder / "tdnn.raw", folder / "tdnn.onnx")
    return folder / "tdnn.raw", folder / "feats.ark"


def _compute() -> Mapping[str, list[str]]:
    raw, features = corpus()
    folder = raw.parent
    peer = _RUNTIME_COMPUTE.format(
        path=str(folder / "tdnn.onnx"),
        features=str(folder / "feats.npz"),
        output=str(folder / "peer.npz"),
    )
    program = ["-m", "opscope", "nnet3-compute", "--use-gpu=no", str(raw)]
    files = [f"ark:{features}", f"ark:{folder / 'ours.ark'}"]
    return {OURS: [sys.executable, *program, *files], "onnxruntime": [sys.executable, "-c", peer]}


def _start() -> Mapping[str, list[str]]:
    raw, _ = corpus()
    return {OURS: [sys.executable, "-m", "opscope", "nnet3-info", str(raw)]}


def _first(code: str) -> Mapping[str, list[str]]:
    return {OURS: [sys.executable, "-c", code]}


def _first_of_vosk(code: str) -> Mapping[str, list[str]]:
    return _first(code.format(path=str(vosk_model())))


WORKLOADS = {
    "nnet3-compute": Workload(
        f"nnet3-compute of a TDNN over {UTTERANCES} utterances, one process, CPU time",
        1.0,
        processes=_compute,
    ),
    "start": Workload("start of nnet3-info, CPU time (limit 0.25 s)", 0.25, processes=_start),
    "first-nets": Workload(
        "dense, convolution, LSTM: a step of training from an empty cache, CPU time, s",
        1.0,
        processes=lambda: _first(_FIRST_NETS),
    ),
    "first-vosk": Workload(
        "Vosk's model: from nothing to the first output, CPU time, s",
        0.5,
        processes=lambda: _first_of_vosk(_FIRST_WHOLE),
    ),
    "first-stream": Workload(
        "Vosk's model: from nothing to the first output of a stream, CPU time, s",
        0.6,
        processes=lambda: _first_of_vosk(_FIRST_STREAM),
    ),
}
