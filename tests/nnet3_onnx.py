"""nnet3 networks as ONNX models, run beside our own computation."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.from_nnet3.export import nnet3_graph
from opscope.bridges.onnx.from_nnet3.streams import Stream
from opscope.nnet3.inference.chunks import ChunkComputer
from opscope.nnet3.inference.pieces import ChunkOptions

LAYERS_OF_FRAMES = {
    "tdnnf": "tdnnf-layer name=a dim=6 bottleneck-dim=4 time-stride=3",
    "tdnnf_tall": "tdnnf-layer name=a dim=6 bottleneck-dim=4 time-stride=0",
    "prefinal": "prefinal-layer name=a small-dim=4 big-dim=8",
    "renorm": "relu-renorm-layer name=a dim=8 input=Append(-2,0,1)",
    "batchnorm_so": "relu-batchnorm-so-layer name=a dim=8",
    "dropout": "relu-batchnorm-dropout-layer name=a dim=8 dropout-proportion=0.2",
    "sigmoid": "sigmoid-layer name=a dim=8 input=Append(-1,0)",
    "tanh": "tanh-layer name=a dim=8",
}
"""Lines of xconfigs whose layers read few frames and have no memory."""


class OnnxNet:
    """A graph in ONNX Runtime, checked by the onnx package."""

    def __init__(self, graph: Graph) -> None:
        onnx = pytest.importorskip("onnx")
        ort = pytest.importorskip("onnxruntime")
        data = model_bytes(graph)
        onnx.checker.check_model(data, full_check=True)
        read = onnx.ModelProto.FromString(data)
        assert {node.domain for node in read.graph.node} <= {"", "ai.onnx"}
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        self.session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        self.graph, self.nodes, self.size = graph, len(graph.message.node), len(data)
        self.outputs = [each.name for each in self.session.get_outputs()]
        self.inputs = [each.name for each in self.session.get_inputs()]

    def run(self, **given: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(self.outputs, self.session.run(None, given), strict=True))

    def whole(self, features, ivector=None, output="output"):
        """The output for one utterance."""
        given = {} if ivector is None else {"ivector": ivector[None]}
        return self.run(input=features[None], **given)[output][0]

    def streamed(self, features, size, ivector=None):
        """The output for one utterance in chunks."""
        stream = Stream.of(self.graph.metadata)
        caches, found = stream.initial_caches(features), []
        given = {} if ivector is None else {"ivector": ivector[None]}
        for chunk in stream.chunks(features, size):
            results = self.run(input=chunk, **given, **caches)
            assert results["output"].shape[1] == chunk.shape[1] // stream.subsampling
            found.append(results["output"][0])
            caches = {name: results[f"new_{name}"] for name in caches}
        return np.concatenate(found)


def with_statistics(nnet, seed=0):
    """The network with statistics in its batch normalizations, as if it were trained."""
    rng = np.random.default_rng(seed)
    for component in nnet.components.values():
        if component.type == "BatchNormComponent":
            width = component.block_dim
            component.count = 100.0
            component.stats_sum = rng.normal(size=width) * 50
            component.stats_sumsq = (
                rng.uniform(0.5, 2, width) * 100 + component.stats_sum**2 / component.count
            )
    return nnet


def ours(nnet, features, ivector=None, subsampling=1):
    """What nnet3-compute gives for one utterance as one chunk."""
    frames = -(-len(features) // subsampling) * subsampling
    options = ChunkOptions(frames_per_chunk=frames, frame_subsampling_factor=subsampling)
    return ChunkComputer(nnet, options).compute(features, ivector)


def assert_exports(nnet, lengths=(1, 2, 7, 19), subsampling=1, streams=True, bound=1e-5):
    """The network gives as ONNX model what it gives here, whole and, if so, in chunks."""
    whole = OnnxNet(nnet3_graph(nnet, frame_subsampling_factor=subsampling))
    chunked = None
    if streams:
        chunked = OnnxNet(nnet3_graph(nnet, True, frame_subsampling_factor=subsampling))
    rng = np.random.default_rng(0)
    columns = nnet.input_dim("ivector")
    for frames in lengths:
        features = rng.normal(size=(frames, nnet.input_dim("input"))).astype(np.float32)
        ivector = rng.normal(size=columns).astype(np.float32) if columns > 0 else None
        wanted = ours(nnet, features, ivector, subsampling)
        given = ivector if "ivector" in whole.inputs else None
        scale = bound * max(1.0, float(np.abs(wanted).max()))
        found = whole.whole(features, given)
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() <= scale, frames
        for size in (1, 5) if chunked is not None else ():
            found = chunked.streamed(features, size * subsampling, given)
            assert np.abs(found[: len(wanted)] - wanted).max() <= scale, (frames, size)
    return whole
