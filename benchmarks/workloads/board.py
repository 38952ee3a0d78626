"""Nets that others chose: images, texts, speech, graphs, rows of tables, with random weights.

Each is a module of PyTorch as its library has it. We run what `opscope.from_torch` makes of it;
peers are PyTorch as it is written and compiled, ONNX Runtime and OpenVINO with the file of
PyTorch's exporter, and JAX with what torchax makes of PyTorch's program. Sizes are those of the
published models; libraries that are not installed leave their rows out. `python build.py bench
--board` measures them, and the transformers of `writing.py`.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .workload import OURS, Maker, Step, Workload, kept, library, session, torch_threads

_DROPPED = (
    *("all.dimname", "all.dimname_out", "index_add.dimname", "index_copy.dimname"),
    *("index_copy_.dimname", "index_fill.Dimname_Scalar", "index_fill.Dimname_Tensor"),
    *("index_fill_.Dimname_Scalar", "index_fill_.Dimname_Tensor", "norm.names_ScalarOpt_dim"),
    *("norm.names_ScalarOpt_dim_dtype", "norm.names_dtype_out", "norm.names_out"),
    *("prod.dim_Dimname", "std.correction_names", "std.correction_names_out", "std.names_dim"),
    *("std.names_out", "std_mean.correction_names", "std_mean.names_dim", "unbind.Dimname"),
)
"""Overloads of ATen, of named dimensions, that torchax 0.0.13 lists and PyTorch has dropped."""
RATE = 0.01
"""Of the updates of trainings."""
_WORDS = 30_522  # of BERT's vocabulary
_TIME = 128  # words of a text


class Net:
    """A module with its inputs.

    Args:
        make: builds the module.
        draw: the inputs, as arrays.

    Attributes:
        name: of files that are made of it.
    """

    def __init__(self, make: Callable[[], Any], draw: Callable[[], Sequence[np.ndarray]]) -> None:
        self.make, self.draw = make, draw
        self.name = ""

    def module(self, train: bool = False) -> tuple[Any, tuple[Any, ...]]:
        torch = library("torch")
        torch.manual_seed(0)
        module = self.make().train(train)
        return module, tuple(torch.from_numpy(array) for array in self.draw())

    def program(self, train: bool = False) -> Any:
        torch = library("torch")
        library("torchvision")  # programs of its models name its operators

        def export(path: pathlib.Path) -> None:
            module, inputs = self.module(train)
            torch.export.save(torch.export.export(module, inputs), path)

        return torch.export.load(kept(f"{self.name}.pt2", export))

    # -- forward -----------------------------------------------------------------------------------

    def ours(self, threads: int) -> Step:
        torch_threads(threads)
        import opscope

        opscope.set_threads(threads)
        model = opscope.from_torch(self.program())
        names = [each.name for each in model.inputs]
        feeds = dict(zip(names, self.draw(), strict=True))
        return lambda: model.run(feeds)

    def eager(self, threads: int, compiled: bool = False) -> Step:
        torch_threads(threads)
        torch = library("torch")
        module, inputs = self.module()
        call = torch.compile(module) if compiled else module

        def step() -> Any:
            with torch.inference_mode():
                return call(*inputs)

        return step

    def file(self) -> str:
        """The path of what PyTorch's exporter writes."""

        def export(path: pathlib.Path) -> None:
            torch = library("torch")
            library("onnxscript")
            module, inputs = self.module()
            names = [f"input{k}" for k in range(len(inputs))]
            made = torch.onnx.export(module, inputs, dynamo=True, verbose=False, input_names=names)
            path.write_bytes(made.model_proto.SerializeToString())

        return str(kept(f"{self.name}.onnx", export))

    def runtime(self, threads: int) -> Step:
        running: Any = session(self.file(), threads)
        feeds = {f"input{k}": array for k, array in enumerate(self.draw())}
        return lambda: running.run(None, feeds)

    def openvino(self, threads: int) -> Step:
        openvino = library("openvino")
        core = openvino.Core()
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        model = core.compile_model(core.read_model(self.file()), "CPU", settings)
        request, arrays = model.create_infer_request(), list(self.draw())
        return lambda: request.infer(arrays)

    def jax(self, threads: int) -> Step:
        """JAX compiles what torchax makes of PyTorch's program."""
        os.environ["NPROC"] = str(threads)
        torch, jax = library("torch"), library("jax")
        dropped = torch.library.Library("aten", "FRAGMENT")
        for name in _DROPPED:
            with contextlib.suppress(RuntimeError):
                dropped.define(f"{name}() -> Tensor")
        exporting = library("torchax.export")
        weights, call = exporting.exported_program_to_jax(self.program())
        inputs = tuple(jax.numpy.asarray(array) for array in self.draw())
        compiled = jax.jit(call)
        return lambda: jax.block_until_ready(compiled(weights, inputs))

    # -- training ----------------------------------------------------------------------------------

    def our_training(self, threads: int) -> Step:
        torch_threads(threads)
        import opscope

        opscope.set_threads(threads)
        model = opscope.from_torch(self.program(train=True))
        b = opscope.NetBuilder.from_desc(model.op_list())
        label = b.input("label", [-1], "int64")
        output = b.var(model.outputs[0].name)
        loss = b.mean(b.softmax_cross_entropy(output, label), name="loss")
        b.backward_from(loss)
        b.add_optimization(RATE, "sgd")
        names = [each.name for each in model.inputs]
        feeds = dict(zip(names, self.draw(), strict=True)) | {"label": self._labels()}
        context = opscope.OpContext(train=True, live_out=["loss"])
        return lambda: b.run(model.scope, context, feed=feeds, fetch=["loss"])

    def training(self, threads: int, compiled: bool = False) -> Step:
        torch_threads(threads)
        torch = library("torch")
        module, inputs = self.module(train=True)
        labels = torch.from_numpy(self._labels())
        call = torch.compile(module) if compiled else module
        update = torch.optim.SGD(module.parameters(), RATE)

        def step() -> Any:
            update.zero_grad()
            loss = torch.nn.functional.cross_entropy(call(*inputs), labels)
            loss.backward()
            update.step()
            return loss

        return step

    def _labels(self) -> np.ndarray:
        return np.arange(len(self.draw()[0])) % 2


def _file_name(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower())


def forward(title: str, net: Net) -> Workload:
    """Forward passes of a net on all sides."""
    net.name = _file_name(title)
    sides: dict[str, Maker] = {
        OURS: net.ours,
        "torch": net.eager,
        "torch.compile": lambda threads: net.eager(threads, compiled=True),
        "onnxruntime": net.runtime,
        "openvino": net.openvino,
        "jax": net.jax,
    }
    return Workload(title, 1.0, sides)


def training(title: str, net: Net) -> Workload:
    """Steps of a classifier's training: forward, backward, update."""
    net.name = _file_name(title)
    sides: dict[str, Maker] = {
        OURS: net.our_training,
        "torch": net.training,
        "torch.compile": lambda threads: net.training(threads, compiled=True),
    }
    return Workload(title, 1.0, sides)


# -- inputs ----------------------------------------------------------------------------------------


def floats(*shape: int) -> Callable[[], list[np.ndarray]]:
    return lambda: [np.random.default_rng(0).standard_normal(shape, np.float32)]


def words(*shape: int, below: int = _WORDS) -> Callable[[], list[np.ndarray]]:
    return lambda: [np.random.default_rng(0).integers(3, below, shape)]


# -- modules ---------------------------------------------------------------------------------------


def of_torchvision(name: str, **options: Any) -> Callable[[], Any]:
    return lambda: getattr(library("torchvision").models, name)(weights=None, **options)


def of_timm(name: str) -> Callable[[], Any]:
    return lambda: library("timm").create_model(name, pretrained=False)


def of_transformers(kind: str, options: dict[str, Any], part: str = "") -> Callable[[], Any]:
    """A model of a kind with its configuration; results are the first tensor of its output.

    Args:
        kind: such as "Bert"; `part` is what its classes end with.
    """

    def make() -> Any:
        transformers, torch = library("transformers"), library("torch")
        config = getattr(transformers, f"{kind}Config")(**options)
        model = getattr(transformers, f"{kind}{part or 'Model'}")(config)

        class First(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, given: Any) -> Any:
                return self.model(given, return_dict=False)[0]

        return First()

    return make


def _whisper(part: str) -> Callable[[], Any]:
    """The encoder or the decoder of Whisper's smallest model."""

    def make() -> Any:
        transformers, torch = library("transformers"), library("torch")
        size = {"d_model": 384, "encoder_layers": 4, "decoder_layers": 4}
        heads = {"encoder_attention_heads": 6, "decoder_attention_heads": 6}
        inner = {"encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536}
        model = transformers.WhisperModel(transformers.WhisperConfig(**size, **heads, **inner))

        class Encoder(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.encoder = model.encoder

            def forward(self, features: Any) -> Any:
                return self.encoder(features, return_dict=False)[0]

        class Decoder(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.decoder = model.decoder

            def forward(self, tokens: Any, states: Any) -> Any:
                return self.decoder(
                    tokens, encoder_hidden_states=states, use_cache=False, return_dict=False
                )[0]

        return {"encoder": Encoder, "decoder": Decoder}[part]()

    return make


def _unet() -> Any:
    """Four levels of two convolutions each, joined with those of the way down."""
    torch = library("torch")
    nn = torch.nn

    def pair(before: int, after: int) -> Any:
        layers: list[Any] = []
        for inner in (before, after):
            conv = nn.Conv2d(inner, after, 3, padding=1, bias=False)
            layers += [conv, nn.BatchNorm2d(after), nn.ReLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = 32, 64, 128, 256
            self.first = pair(3, sizes[0])
            steps = list(zip(sizes[:-1], sizes[1:], strict=True))
            self.down = nn.ModuleList(pair(a, b) for a, b in steps)
            self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in steps)
            self.after = nn.ModuleList(pair(2 * a, a) for a, _ in steps)
            self.last = nn.Conv2d(sizes[0], 2, 1)

        def forward(self, image: Any) -> Any:
            x = self.first(image)
            kept = []
            for down in self.down:
                kept.append(x)
                x = down(nn.functional.max_pool2d(x, 2))
            for up, after, beside in zip(self.up[::-1], self.after[::-1], kept[::-1], strict=True):
                x = after(torch.cat([beside, up(x)], 1))
            return self.last(x)

    return UNet()


def _speech_conv() -> Any:
    """A wide convolution over time, eight separable blocks, scores of each frame."""
    nn = library("torch").nn

    def block(size: int) -> Any:
        return nn.Sequential(
            nn.Conv1d(size, size, 11, padding=5, groups=size, bias=False),
            nn.Conv1d(size, size, 1, bias=False),
            nn.BatchNorm1d(size),
            nn.ReLU(),
        )

    first = [nn.Conv1d(80, 256, 11, 2, 5, bias=False), nn.BatchNorm1d(256), nn.ReLU()]
    return nn.Sequential(*first, *(block(256) for _ in range(8)), nn.Conv1d(256, 64, 1))


_FIELDS, _ROWS = 26, 20_000


def _rows_of_tables() -> Any:
    """Embeddings of categories and an MLP of numbers, multiplied with each other, as DLRM."""
    torch = library("torch")
    nn = torch.nn

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(_ROWS, 32) for _ in range(_FIELDS))
            self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32))
            pairs = _FIELDS * (_FIELDS + 1) // 2
            self.top = nn.Sequential(nn.Linear(32 + pairs, 256), nn.ReLU(), nn.Linear(256, 2))
            self.register_buffer("pairs", torch.tril_indices(_FIELDS + 1, _FIELDS + 1, -1))

        def forward(self, numbers: Any, categories: Any) -> Any:
            dense = self.bottom(numbers)
            found = [table(categories[:, k]) for k, table in enumerate(self.tables)]
            rows = torch.stack([dense, *found], 1)
            products = rows @ rows.transpose(1, 2)
            return self.top(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], 1))

    return Rows()


def _table_rows() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((256, 13)).astype(np.float32)
    return [numbers, rng.integers(0, _ROWS, (256, _FIELDS))]


_NODES, _EDGES = 5_000, 40_000


def _graph() -> Any:
    """Three layers that send rows along edges and sum them up where they end."""
    torch = library("torch")
    nn = torch.nn

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
            self.sent = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
            self.last = nn.Linear(64, 10)

        def forward(self, rows: Any, begins: Any, ends: Any) -> Any:
            for own, sent in zip(self.own, self.sent, strict=True):
                along = sent(rows)[begins]
                summed = torch.zeros_like(rows).index_add(0, ends, along)
                rows = torch.relu(own(rows) + summed)
            return self.last(rows)

    return Graph()


def _graph_inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((_NODES, 64)).astype(np.float32)
    return [rows, rng.integers(0, _NODES, _EDGES), rng.integers(0, _NODES, _EDGES)]


class Lines:
    """A recognizer of text lines, each of another width: convolutions, an LSTM both ways, scores.

    A step reads `_LINES` lines of widths that were never seen before. We and ONNX Runtime read the
    same file.
    """

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def images(self) -> list[np.ndarray]:
        widths = self._rng.integers(64, 2048, _LINES)
        return [self._rng.standard_normal((1, 1, 32, width), np.float32) for width in widths]

    def module(self) -> Any:
        torch = library("torch")
        nn = torch.nn
        torch.manual_seed(0)

        class Reader(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                layers: list[Any] = []
                for before, after in ((1, 32), (32, 64), (64, 128)):
                    conv = nn.Conv2d(before, after, 3, padding=1)
                    layers += [conv, nn.ReLU(), nn.MaxPool2d(2)]
                self.images = nn.Sequential(*layers)
                self.both = nn.LSTM(512, 128, bidirectional=True)
                self.scores = nn.Linear(256, 96)

            def forward(self, line: Any) -> Any:
                columns = self.images(line).flatten(1, 2).permute(2, 0, 1)
                return self.scores(self.both(columns)[0])

        return Reader().eval()

    def file(self) -> str:
        def export(path: pathlib.Path) -> None:
            torch = library("torch")
            line = torch.zeros(1, 1, 32, 256)
            how: dict[str, Any] = {"input_names": ["line"], "output_names": ["scores"]}
            how["dynamic_axes"] = {"line": {3: "width"}, "scores": {0: "columns"}}
            torch.onnx.export(self.module(), (line,), str(path), dynamo=False, **how)

        return str(kept("lines.onnx", export))

    def ours(self, threads: int) -> Step:
        import opscope

        opscope.set_threads(threads)
        model = opscope.from_onnx(self.file())
        return lambda: [model.run({"line": image}) for image in self.images()]

    def eager(self, threads: int) -> Step:
        torch_threads(threads)
        torch = library("torch")
        module = self.module()

        def step() -> Any:
            with torch.inference_mode():
                return [module(torch.from_numpy(image)) for image in self.images()]

        return step

    def runtime(self, threads: int) -> Step:
        running: Any = session(self.file(), threads)
        return lambda: [running.run(None, {"line": image}) for image in self.images()]


_LINES = 8
_lines = Lines()
_IMAGE = floats(1, 3, 224, 224)
_BERT = of_transformers("Bert", {"attn_implementation": "sdpa"})
_WAV2VEC = of_transformers("Wav2Vec2", {})

WORKLOADS = {
    "resnet18": forward("ResNet-18, an image", Net(of_torchvision("resnet18"), _IMAGE)),
    "resnet50": forward("ResNet-50, an image", Net(of_torchvision("resnet50"), _IMAGE)),
    "mobilenet-v3": forward(
        "MobileNetV3 large, an image", Net(of_torchvision("mobilenet_v3_large"), _IMAGE)
    ),
    "squeezenet": forward("SqueezeNet 1.1, an image", Net(of_torchvision("squeezenet1_1"), _IMAGE)),
    "shufflenet": forward(
        "ShuffleNet V2 x0.5, an image", Net(of_torchvision("shufflenet_v2_x0_5"), _IMAGE)
    ),
    "efficientnet": forward(
        "EfficientNet-B0, an image", Net(of_torchvision("efficientnet_b0"), _IMAGE)
    ),
    "vit-s": forward("ViT-S/16, an image", Net(of_timm("vit_small_patch16_224"), _IMAGE)),
    "swin-t": forward("Swin-T, an image", Net(of_torchvision("swin_t"), _IMAGE)),
    "unet": forward("U-Net, an image of 256x256", Net(_unet, floats(1, 3, 256, 256))),
    "bert": forward("BERT-base, 128 words", Net(_BERT, words(1, _TIME))),
    "distilbert": forward(
        "DistilBERT, 128 words", Net(of_transformers("DistilBert", {}), words(1, _TIME))
    ),
    "gpt2": forward(
        "GPT-2 124M, 128 words",
        Net(of_transformers("GPT2", {"use_cache": False}, "LMHeadModel"), words(1, _TIME)),
    ),
    "whisper-encoder": forward(
        "Whisper tiny, encoder, 30 s", Net(_whisper("encoder"), floats(1, 80, 3000))
    ),
    "whisper-decoder": forward(
        "Whisper tiny, decoder, 32 words",
        Net(_whisper("decoder"), lambda: [*words(1, 32)(), *floats(1, 1500, 384)()]),
    ),
    "wav2vec2": forward("wav2vec 2.0 base, 2 s", Net(_WAV2VEC, floats(1, 32_000))),
    "speech-conv": forward(
        "separable convolutions over time, 10 s of speech", Net(_speech_conv, floats(1, 80, 1000))
    ),
    "tables": forward("26 embeddings and MLPs, 256 rows", Net(_rows_of_tables, _table_rows)),
    "graph": forward("graph of 40,000 edges, sums at nodes", Net(_graph, _graph_inputs)),
    "lines": Workload(
        f"{_LINES} text lines of fresh widths, convolutions and LSTM",
        1.0,
        {OURS: _lines.ours, "torch": _lines.eager, "onnxruntime": _lines.runtime},
    ),
    "resnet18-step": training(
        "ResNet-18, 8 images of 64x64, SGD step",
        Net(of_torchvision("resnet18"), floats(8, 3, 64, 64)),
    ),
    "mobilenet-v3-step": training(
        "MobileNetV3 small, 8 images of 64x64, SGD step",
        Net(of_torchvision("mobilenet_v3_small", dropout=0.0), floats(8, 3, 64, 64)),
    ),
    "vit-step": training(
        "ViT tiny, 4 images, SGD step", Net(of_timm("vit_tiny_patch16_224"), floats(4, 3, 224, 224))
    ),
    "tables-step": training(
        "26 embeddings and MLPs, 256 rows, SGD step", Net(_rows_of_tables, _table_rows)
    ),
}
