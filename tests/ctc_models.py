"""CTC models whose outputs are given, files of small ones, and searches to compare with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import write_model
from opscope.speech import CtcModel

RATE = 16000
TONES = {"l": 400, "o": 900, "h": 1800, "i": 3200}
TOKENS = ["<blk>", *TONES]


class Given:
    """A network that gives what it gets, [frames, tokens]."""

    path = "given"

    def __init__(self, tokens: int, **metadata: str) -> None:
        self.metadata = metadata
        self.inputs = [SimpleNamespace(name="x", dtype=np.dtype("f4"), shape=("T", tokens))]
        self.outputs = [SimpleNamespace(name="y", dtype=np.dtype("f4"), shape=("T", tokens))]

    def run(self, feed: dict[str, Any], fetch: Sequence[str] | None = None) -> dict[str, Any]:
        return {"y": feed["x"]}


def of_outputs(outputs: np.ndarray, tokens: Sequence[str], **options: Any) -> CtcModel:
    """A model that hears these outputs, [frames, tokens], in whatever it is given."""
    network = Given(outputs.shape[1])
    return CtcModel(network, tokens, features=lambda *_: outputs, **options)


def log_softmax(outputs: np.ndarray) -> np.ndarray:
    """In float64."""
    rows = outputs.astype(np.float64)
    return rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)


def prefix_beam_search(rows: np.ndarray, blank: int, beam: int) -> dict[tuple[int, ...], float]:
    """Texts and their log-probabilities, all alignments added up: Hannun's search."""
    # of each prefix: log-probabilities that it ends in a blank, and in its last token
    known = {(): (0.0, -math.inf)}
    for row in rows.tolist():
        found: dict[tuple[int, ...], list[float]] = {}

        def add(prefix: tuple[int, ...], side: int, value: float, found=found) -> None:
            pair = found.setdefault(prefix, [-math.inf, -math.inf])
            pair[side] = float(np.logaddexp(pair[side], value))

        for prefix, (quiet, loud) in known.items():
            both = float(np.logaddexp(quiet, loud))
            add(prefix, 0, both + row[blank])
            for token, value in enumerate(row):
                if token == blank:
                    continue
                if prefix and token == prefix[-1]:
                    add(prefix, 1, loud + value)
                    add((*prefix, token), 1, quiet + value)
                else:
                    add((*prefix, token), 1, both + value)
        best = sorted(found.items(), key=lambda item: -np.logaddexp(*item[1]))[:beam]
        known = {prefix: (pair[0], pair[1]) for prefix, pair in best}
    return {prefix: float(np.logaddexp(*pair)) for prefix, pair in known.items()}


def best_alignments(rows: np.ndarray, blank: int) -> dict[tuple[int, ...], float]:
    """All texts and the log-probabilities of their best alignments, by trying all of these."""
    best: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(rows.shape[1]), repeat=len(rows)):
        text = tuple(token for token, _ in itertools.groupby(path) if token != blank)
        value = sum(row[token] for row, token in zip(rows.tolist(), path, strict=True))
        best[text] = max(best.get(text, -math.inf), value)
    return best


def write_linear(
    path: Path, weights: np.ndarray, *, batch: bool = True, metadata: dict[str, str] | None = None
) -> Path:
    """Write a network whose outputs are its features times `weights`, [columns, tokens], with
    lengths as sherpa-onnx has them, where it has a batch."""
    columns, tokens = weights.shape
    graph = Graph("linear")
    graph.metadata |= metadata or {}
    dims = ["N", "T"] if batch else ["T"]
    x = graph.input("x", np.float32, [*dims, columns])
    graph.node("MatMul", [x, graph.constant(weights.astype(np.float32))], outputs=["log_probs"])
    graph.output("log_probs", np.float32, [*dims, tokens])
    if batch:
        graph.node("Identity", [graph.input("x_lens", np.int64, ["N"])], outputs=["log_probs_len"])
        graph.output("log_probs_len", np.int64, ["N"])
    write_model(path, graph)
    return path


def write_raw(path: Path, kernels: np.ndarray, stride: int) -> Path:
    """Write a network of samples as wav2vec2 has it: squared sums of kernels, [tokens, size], and
    20 for the first token."""
    tokens, size = kernels.shape
    graph = Graph("raw")
    x = graph.input("input_values", np.float32, ["batch", "samples"])
    row = graph.node("Unsqueeze", [x, graph.ints(1)])
    weights = graph.constant(kernels[:, None].astype(np.float32))
    heard = graph.node("Conv", [row, weights], strides=[stride], kernel_shape=[size])
    power = graph.node("Mul", [heard, heard])
    quiet = graph.constant(np.array([20.0, *[0.0] * (tokens - 1)], np.float32)[None, :, None])
    graph.node("Transpose", [graph.node("Add", [power, quiet])], outputs=["logits"], perm=[0, 2, 1])
    graph.output("logits", np.float32, ["batch", "frames", tokens])
    write_model(path, graph)
    return path


def tone(text: str, rate: int = RATE, pause: float = 0.05, length: float = 0.1) -> np.ndarray:
    """Samples of tokens as tones with pauses between."""
    parts = [np.zeros(int(pause * rate))]
    for token in text.split():
        time = np.arange(int(length * rate)) / rate
        parts += [8000 * np.sin(2 * np.pi * TONES[token] * time), np.zeros(int(pause * rate))]
    return np.concatenate(parts).astype(np.float32)


def write_tones(folder: Path) -> Path:
    """A folder with a network that knows tones in samples from -1 to 1."""
    time = np.arange(320) / RATE
    kernels = [np.zeros(320), *(np.sin(2 * np.pi * hertz * time) for hertz in TONES.values())]
    folder.mkdir(parents=True)
    write_raw(folder / "model.onnx", np.array(kernels), 320)
    (folder / "tokens.txt").write_text(numbered(TOKENS), encoding="utf-8")
    return folder


def numbered(tokens: list[str]) -> str:
    return "".join(f"{token} {at}\n" for at, token in enumerate(tokens))
