"""The table of ONNX exports: models of Kaldi and CNTK, whole and as streams, in ONNX Runtime.

    python benchmarks/onnx_exports.py DATA [--vosk FOLDER] [--large FOLDER [--gigabytes 2.2]]

DATA holds `kaldi/trained`, `cntk/slu.forward.cmf`, `cntk/atis.test.ctf` and `speech/vosk_ko`. Each
model is exported, checked by `onnx.checker` with `full_check`, and run on the real utterances: each
whole, cut to several lengths, and as a stream in chunks of several sizes. Errors are the largest
against what we compute; relative ones are `|onnx - here| / max(1, |here|)`. Times are the best of
several runs of the longest utterance on one thread.

`--large` writes a network with more than 2 GB of arrays, with these beside the model, runs it, and
tells the peak of memory while it is written.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import opscope
from opscope.bridges.onnx.export.checking import error_of
from opscope.bridges.onnx.files.writing import write_model
from opscope.bridges.onnx.from_nnet3.export import nnet3_graph
from opscope.bridges.onnx.from_nnet3.streams import Stream
from opscope.cntk.models.open_model import open_model
from opscope.cntk.run.runtime import CntkNet
from opscope.kaldi.tables.tables import read_table
from opscope.nnet3 import ChunkComputer, ChunkOptions, Nnet
from opscope.nnet3.network.for_inference import opened
from opscope.nnet3.network.vosk_folder import acoustic_model_of

TRAINED = ("tdnn", "tdnnf", "cnn", "lstmp", "stats")
LENGTHS = (1, 2, 3, 4, 6, 7, 23, 68)
"""First frames of utterances, beside all."""
RUNS = 15

Utterance = tuple[np.ndarray, np.ndarray | None]
"""Features [frames, dim], and an iVector where the network reads one."""
COLUMNS = (
    "model", "nodes", "for streams", "of ai.onnx", "full check", "error", "relative",
    "of streams", "MB", "frames", "ONNX Runtime, ms", "here, ms",
)  # fmt: skip


class Loaded:
    """A written model in ONNX Runtime on one thread.

    Args:
        path: of it.
    """

    def __init__(self, path: Path) -> None:
        onnx.checker.check_model(str(path), full_check=True)
        model = onnx.load(str(path), load_external_data=False)
        self.nodes = len(model.graph.node)
        self.bytes = path.stat().st_size
        domains = {node.domain for node in _nodes(model.graph)}
        self.is_standard = domains <= {"", "ai.onnx"}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self.names = [each.name for each in self.session.get_outputs()]

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(self.names, self.session.run(None, dict(inputs)), strict=True))

    def stream(self, stream: Stream, utterance: Utterance, size: int) -> np.ndarray:
        """The output of an utterance in chunks."""
        features = utterance[0]
        caches = stream.initial_caches(utterance[0])
        found = []
        for chunk in stream.chunks(features, size):
            results = self.run({**inputs_of((chunk[0], utterance[1])), **caches})
            found.append(results["output"][0])
            caches = {name: results[f"new_{name}"] for name in caches}
        return np.concatenate(found)


def inputs_of(utterance: Utterance) -> dict[str, np.ndarray]:
    features, ivector = utterance
    given = {"input": features[None]}
    return given if ivector is None else {**given, "ivector": ivector[None]}


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g)


def best(call: Callable[[], object]) -> float:
    """The least of several times, in ms."""
    times: list[float] = []
    for _ in range(RUNS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


class Worst:
    """The largest errors so far, absolute and relative."""

    def __init__(self) -> None:
        self.error = 0.0
        self.relative = 0.0

    def see(self, found: np.ndarray, here: np.ndarray) -> None:
        self.error = max(self.error, float(np.abs(found - here).max()))
        self.relative = max(self.relative, float(error_of(found, here).max()))


def nnet3_row(
    title: str,
    model: str,
    utterances: Sequence[Utterance],
    factor: int,
    sizes: Sequence[int],
    folder: Path,
) -> str:
    """Export a network and measure it."""
    network = opened(model)

    def here(utterance: Utterance) -> np.ndarray:
        frames = -(-len(utterance[0]) // factor) * factor
        options = ChunkOptions(frames_per_chunk=frames, frame_subsampling_factor=factor)
        return ChunkComputer(network, options).compute(*utterance)

    path = folder / f"{title.replace(' ', '_')}.onnx"
    write_model(path, nnet3_graph(network, frame_subsampling_factor=factor))
    whole = Loaded(path)
    errors = Worst()
    for features, ivector in utterances:
        for frames in (*LENGTHS, len(features)):
            part = features[:frames], ivector
            errors.see(whole.run(inputs_of(part))["output"][0], here(part))
    chunked = None
    streamed = Worst()
    if sizes:
        graph = nnet3_graph(network, True, frame_subsampling_factor=factor)
        write_model(path.with_suffix(".stream.onnx"), graph)
        chunked = Loaded(path.with_suffix(".stream.onnx"))
        stream = Stream.of(graph.metadata)
        for utterance in utterances:
            wanted = here(utterance)
            for size in sizes:
                streamed.see(chunked.stream(stream, utterance, size), wanted)
    longest = max(utterances, key=lambda each: len(each[0]))
    frames = -(-len(longest[0]) // factor) * factor
    options = ChunkOptions(frames_per_chunk=frames, frame_subsampling_factor=factor)
    computer = ChunkComputer(network, options)
    here_ms = best(lambda: computer.compute(*longest))
    theirs = best(lambda: whole.run(inputs_of(longest)))
    standard = whole.is_standard and (chunked is None or chunked.is_standard)
    return (
        f"| {title} | {whole.nodes} | {chunked.nodes if chunked else '–'} |"
        f" {'all' if standard else 'not all'} | passed | {errors.error:.1e} |"
        f" {errors.relative:.1e} | {f'{streamed.error:.1e}' if chunked else '–'} |"
        f" {whole.bytes / 1e6:.2f} | {len(longest[0])} | {theirs:.1f} | {here_ms:.1f} |"
    )


def cntk_row(data: Path, folder: Path) -> str:
    """CNTK's network for slot filling on its test sentences."""
    sentences = _sentences(data / "atis.test.ctf")
    path = folder / "slu.onnx"
    opscope.to_onnx(str(data / "slu.forward.cmf"), path, inputs=[{"query": sentences[0]}])
    whole = Loaded(path)
    errors = Worst()
    net = CntkNet(open_model(data / "slu.forward.cmf").network)
    for one, own in zip(sentences, net.eval({"query": sentences}, ["z"])["z"], strict=True):
        errors.see(whole.run({"query": one})["z"], own)
    longest = max(sentences, key=len)
    here_ms = best(lambda: net.eval({"query": [longest]}, ["z"]))
    theirs = best(lambda: whole.run({"query": longest}))
    return (
        f"| slu.forward.cmf | {whole.nodes} | – | {'all' if whole.is_standard else 'not all'} |"
        f" passed | {errors.error:.1e} | {errors.relative:.1e} | – | {whole.bytes / 1e6:.2f} |"
        f" {len(longest)} | {theirs:.1f} | {here_ms:.1f} |"
    )


def _sentences(path: Path) -> list[np.ndarray]:
    """The words of each sentence of a text-format file, as rows with a 1 each [words, 943]."""
    found: dict[str, list[int]] = {}
    for line in path.read_text().splitlines():
        key, *streams = line.split("|")
        words = [text[3:].split(":")[0] for text in streams if text.startswith("S0 ")]
        found.setdefault(key.strip(), []).extend(map(int, words))
    return [np.eye(943, dtype=np.float32)[words] for words in found.values() if words]


def large(folder: Path, gigabytes: float) -> None:
    """Export a network whose arrays are larger than one file of protobuf may be."""
    dim = 8192
    layers = int(gigabytes * 1e9 / (4 * dim * dim)) + 1
    lines = ["input-node name=input dim=16"]
    read = "input"
    size = 16
    for number in range(layers + 1):
        name = f"a{number}"
        lines.append(
            f"component name={name} type=NaturalGradientAffineComponent input-dim={size}"
            f" output-dim={dim} param-stddev=0.002 bias-stddev=0.1"
        )
        lines.append(f"component-node name={name} component={name} input={read}")
        lines.append(f"component name=r{number} type=RectifiedLinearComponent dim={dim}")
        lines.append(f"component-node name=r{number} component=r{number} input={name}")
        read = f"r{number}"
        size = dim
    lines.append(f"component name=z type=AffineComponent input-dim={dim} output-dim=8")
    lines.append(f"component-node name=z component=z input={read}")
    lines.append("output-node name=output input=z")
    nnet = Nnet.from_config_text("\n".join(lines), 1)
    held = _peak()
    path = folder / "large.onnx"
    start = time.perf_counter()
    graph = nnet3_graph(nnet)
    write_model(path, graph)
    seconds = time.perf_counter() - start
    peak = _peak()
    sizes = {each.name: each.stat().st_size for each in folder.iterdir() if each.is_file()}
    x = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    wanted = ChunkComputer(nnet, ChunkOptions(frames_per_chunk=3)).compute(x)
    del graph, nnet
    found = Loaded(path).run({"input": x[None]})["output"][0]
    print(f"{layers} layers of {dim}: {sizes}")
    print(f"the network {held:.2f} GB, the peak while it is written {peak:.2f} GB, {seconds:.1f} s")
    print(f"relative error {error_of(found, wanted).max():.1e}")


def _peak() -> float:
    """The most memory that this process has had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--vosk", type=Path, help="a Vosk model's folder")
    parser.add_argument("--out", type=Path, default=Path("."), help="where models are written")
    parser.add_argument("--large", type=Path, help="a folder for a model of more than 2 GB")
    parser.add_argument("--gigabytes", type=float, default=2.2)
    options = parser.parse_args()
    if options.large:
        large(options.large, options.gigabytes)
        return
    trained = options.data / "kaldi" / "trained"
    features = read_table(f"ark:{trained / 'feats.ark'}", "matrix")
    utterances: list[Utterance] = [(np.asarray(matrix), None) for _, matrix in features]
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{'---|' * len(COLUMNS)}")
    for name in TRAINED:
        sizes = () if name == "stats" else (1, 2, 6, 20, 99)
        model = str(trained / name / "model.raw")
        print(nnet3_row(name, model, utterances, 1, sizes, options.out), flush=True)
    if options.vosk:
        speech = options.data / "speech" / "vosk_ko"
        spoken = [np.load(path) for path in sorted(speech.glob("u*.npz"))]
        utterances = [(each["mfcc"], each["ivectors"][-1]) for each in spoken]
        model = acoustic_model_of(str(options.vosk))
        sizes = (3, 9, 51, 300, 999)
        print(nnet3_row("Vosk small Korean", model, utterances, 3, sizes, options.out), flush=True)
    print(cntk_row(options.data / "cntk", options.out))


if __name__ == "__main__":
    main()
