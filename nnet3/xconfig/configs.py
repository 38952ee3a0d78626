"""From an xconfig to the config files that nnet3 reads.

    input name=input dim=40
    relu-batchnorm-layer name=tdnn1 dim=512 input=Append(-1,0,1)
    output-layer name=output dim=2000

Facts from Kaldi's steps/nnet3/xconfig_to_configs.py and steps/libs/nnet3/xconfig. The lines are
Kaldi's, in its order, without its comments and its runs of spaces. It differs where Kaldi's scripts
fail or write what nnet3 cannot read: brackets as in `[-1]` are allowed, dimensions derived by
division stay whole numbers, cells of LSTMs and GRUs can be used (`lstm1.c_t`, of the fast LSTMs
`lstm1.c`), and options that cannot be are refused here.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping

import numpy as np

from ...framework.base.errors import FormatError, nearest
from ...framework.base.files.atomic import PathLike, write_together
from ..language.config import is_valid_name
from . import basic, composite, convolution, gru, lstm, single
from .inputs import InputError, Resolved, resolve
from .layer import ALL_CONFIGS, LAYER_TYPES, Layer, LayerType
from .lines import XconfigLine, read_lines

# Importing these registers their layer types.
_FAMILIES = (basic, composite, convolution, gru, lstm, single)


class Transforms(Mapping[str, np.ndarray]):
    """Matrices by path, each made when it is asked for: a short line may mean a very large one.

    Args:
        settings: the arguments of `idct_matrix` by path.
    """

    def __init__(self, settings: Mapping[str, tuple[int, int, float]]) -> None:
        self._settings = settings

    def __getitem__(self, path: str) -> np.ndarray:
        return basic.idct_matrix(*self._settings[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)


@dataclasses.dataclass(frozen=True)
class Configs:
    """The config files made from an xconfig.

    Attributes:
        final: the network.
        ref: the network with transforms of random numbers in place of those that `final` reads
            from files; good for finding out the context.
        init: the part before a `fixed-affine-layer`, used to estimate its transform; empty where
            there is none.
        transforms: float64 matrices of `idct-layer`s, by the path that `final` reads them from.
    """

    final: str
    ref: str
    init: str
    transforms: Mapping[str, np.ndarray]

    def write(self, directory: PathLike) -> None:
        """Write `final.config`, `ref.config`, `init.config` where there is one, and the transforms
        (text matrices; a relative path is relative to the working directory, as in Kaldi).

        Raises:
            SaveError: a file cannot be written; none has then changed.
        """
        folder = os.fspath(directory)
        texts = {os.path.join(folder, f"{n}.config"): getattr(self, n) for n in ALL_CONFIGS}
        texts = {path: text for path, text in texts.items() if text}
        texts.update((path, _matrix_text(m)) for path, m in self.transforms.items())
        write_together([(path, _writer(text.encode())) for path, text in texts.items()])


def _writer(data: bytes):
    return lambda file: file.write(data)


def _matrix_text(matrix: np.ndarray) -> str:
    rows = (" ".join(map(repr, row)) for row in matrix.tolist())
    return "[ " + "\n".join(rows) + " ]"


def layer_types() -> list[str]:
    """The layer types that a line may begin with, sorted."""
    return sorted(LAYER_TYPES)


def layer_type_of(name: str) -> LayerType:
    """The layer type of this name.

    Raises:
        FormatError: there is none; the message has the nearest names.
    """
    if name not in LAYER_TYPES:
        raise FormatError(f"no such layer type: {name}{nearest(name, LAYER_TYPES)}")
    return LAYER_TYPES[name]


def xconfig_to_config(
    source: PathLike, config: str = "final", existing: Mapping[str, int] | None = None
) -> str:
    """The text of one config file; see `xconfig_to_configs`.

    Args:
        source: path of an xconfig, or its text (a str with a line break in it).
        config: `final`, `ref` or `init`.
        existing: dimensions of the nodes of a network that the layers are added to, by name.

    Raises:
        FormatError: bad input, with file and line; or there is no such config.
    """
    if config not in ALL_CONFIGS:
        hint = nearest(config, ALL_CONFIGS)
        raise FormatError(f"config={config!r} is none of {', '.join(ALL_CONFIGS)}{hint}")
    return getattr(xconfig_to_configs(source, existing), config)


def xconfig_to_configs(source: PathLike, existing: Mapping[str, int] | None = None) -> Configs:
    """All config files of an xconfig.

    Args:
        source: path of an xconfig, or its text (a str with a line break in it).
        existing: dimensions of the nodes of a network that the layers are added to, by name. Inputs
            may name them; `[-1]` never means one.

    Raises:
        FormatError: an unknown layer type or option, a missing or wrong value, an input that is not
            defined before, or dimensions that do not fit; with file and line.
    """
    network = LayerNetwork(existing or {})
    lines = read_lines(source)
    for line in lines:
        network.add(line)
    texts = network.texts(lines[-1].place)
    if "output-node " not in texts["init"]:
        texts["init"] = ""
    return Configs(**texts, transforms=network.transforms())


class LayerNetwork:
    """The layers so far.

    Attributes:
        layers: by name, in the order of their lines.
    """

    def __init__(self, existing: Mapping[str, int]) -> None:
        self._existing = existing
        self.layers: dict[str, Layer] = {}

    def add(self, line: XconfigLine) -> None:
        """Build the layer of `line`.

        Raises:
            FormatError: something is wrong with it.
        """
        kind = self.kind_of(line)
        layer = Layer(line, kind, self.name_of(line))
        for error in self.wrong_keys(layer, kind):
            raise error
        self.connect(layer)
        kind.build(layer)
        self.layers[layer.name] = layer

    def kind_of(self, line: XconfigLine) -> LayerType:
        """The layer type of a line."""
        try:
            return layer_type_of(line.type)
        except FormatError as error:
            raise FormatError(f"{line.place}: {error}") from error

    def name_of(self, line: XconfigLine) -> str:
        """The name of a layer, which none before it has."""
        name = line.values.get("name")
        problem = ""
        if name is None:
            problem = f"name= is missing{nearest('name', line.values)}"
        elif not is_valid_name(name):
            problem = f"{name!r} cannot be a name"
        elif name in self.layers:
            problem = f"{name!r}: the name is taken by {self.layers[name].place}"
        if name is None or problem:
            raise FormatError(f"{line.place}: {line.type}: {problem}")
        return name

    def wrong_keys(self, layer: Layer, kind: LayerType) -> list[FormatError]:
        """An error for each key that the layer type does not have."""
        errors = []
        for key, value in layer.explicit.items():
            if key != "name" and key not in kind.options:
                hint = nearest(key, kind.options) or f" (known: {', '.join(sorted(kind.options))})"
                errors.append(layer.error(f"{key}={value}: no such option{hint}"))
        return errors

    def connect(self, layer: Layer) -> None:
        """Give a layer its input."""
        if "input" not in layer.options:
            return
        try:
            layer.connect(resolve(layer["input"], list(self.layers), self.find))
        except (InputError, FormatError) as error:
            layer.fail(str(error))

    def find(self, name: str) -> Resolved:
        """The descriptor for `layer` or `layer.output` in an input."""
        if name in self._existing:
            return Resolved(name, self._existing[name])
        whole, _, inner = (name, "", "") if name in self.layers else name.partition(".")
        layer = self.layers.get(whole)
        if layer is None:
            known = [*self.layers, *self._existing]
            raise InputError(f"no layer before this one is named {whole!r}{nearest(whole, known)}")
        resolved = layer.outputs.get(inner)
        if resolved is None:
            others = ", ".join(f"{whole}.{output}" for output in layer.outputs if output)
            hint = f"; it has {others}" if others else ""
            raise InputError(f"{layer.type} {whole!r} gives no {name!r} to other layers{hint}")
        if resolved.line and all(text != resolved.line for _, text in layer.lines):
            layer.line(resolved.line)
        return Resolved(resolved.text, resolved.dim)

    def texts(self, last: str) -> dict[str, str]:
        """The config texts by name; `last` is the place of the last line.

        Raises:
            FormatError: a node or component is there twice, or there is no output.
        """
        lines: dict[str, list[str]] = {config: [] for config in ALL_CONFIGS}
        seen: dict[tuple[str, bool, str], Layer] = {}
        for layer in self.layers.values():
            for configs, text in layer.lines:
                word, name = text.split(" ", 2)[:2]
                for config in configs:
                    key = (config, word == "component", name)
                    if key in seen:
                        layer.fail(
                            f"{word} {name} is also written by {seen[key].place} in {config}.config"
                        )
                    seen[key] = layer
                    lines[config].append(text + "\n")
        texts = {config: "".join(some) for config, some in lines.items()}
        if "output-node " not in texts["final"]:
            raise FormatError(f"{last}: the last line, and there was no output layer")
        return texts

    def transforms(self) -> Transforms:
        """The matrices of the idct-layers."""
        return Transforms(
            {
                layer["affine-transform-file"]: (
                    layer.input_dim,
                    layer["dim"],
                    layer["cepstral-lifter"],
                )
                for layer in self.layers.values()
                if layer.type == "idct-layer"
            }
        )
