"""`cntk_to_torch`: a folder with a CNTK network as a PyTorch module."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....cntk.lower.emitter import dims
from ....cntk.models.open_model import open_model
from ....cntk.network.network import Network
from ....cntk.network.nodes.node import Node
from ....cntk.run.runtime import CntkNet
from ....framework.base.atomic import PathLike
from ..folder import TorchModel, write_folder
from ..helpers import CHECK
from .forward import Writer
from .modules import Layer, state_of
from .pruning import pruned
from .sources import MODEL, SOURCES

_LENGTHS = (5, 23)  # rows of the recorded cases
_WIDTH = 96


def cntk_to_torch(
    model: PathLike | CntkNet, folder: PathLike, *, outputs: Sequence[str] | None = None
) -> TorchModel:
    """Write a CNTK network as a PyTorch module; arguments and errors as `to_torch`."""
    name = "" if isinstance(model, CntkNet) else os.path.basename(os.fspath(model))
    network = model.network if isinstance(model, CntkNet) else open_model(model).network
    written = Writer(pruned(network, outputs))
    net = _in_float32(network, model if isinstance(model, CntkNet) else None)
    state = state_of(written.layers, lambda node: net.get(node.name))
    count = sum(array.size for array in state.values() if array.dtype.kind == "f")
    config = config_of(written, name, count)
    source = source_of(written, name, count)
    found = written.net.outputs
    check = CHECK.replace("@arguments@", json.dumps(list(written.arguments)))
    check = check.replace("@outputs@", json.dumps([node.name for node in found]))
    made = TorchModel(os.fspath(folder), source, config, count, tuple(written.notes))
    write_folder(made, check, state, _recorded(net, written))
    return made


def _in_float32(network: Network, given: CntkNet | None) -> CntkNet:
    """The network in single precision, with the values that it has now."""
    made = CntkNet(network, dtype=np.float32)
    if given is not None:
        for name, node in network.nodes.items():
            held = given.scope.find(node.name)
            if held is not None and (node.is_parameter or node.kind.precompute):
                made.set(name, given.get(name))
    return made


def source_of(written: Writer, name: str, count: int) -> str:
    """The text of `model.py`."""
    indent = " " * 8
    lines = [
        line for attribute, layer in written.layers.items() for line in _made(attribute, layer)
    ]
    front = "N, T" if written.net.timed else "N"
    takes = ", ".join(f"{arg} {_shown(front, node)}" for arg, node in written.arguments.items())
    gives = ", ".join(f"{_plain(node.name)} {_shown(front, node)}" for node in written.net.outputs)
    body = [f"{indent}{line}" if line else "" for each in written.lines for line in _broken(each)]
    title = f"The network of {_plain(name)} as a PyTorch module." if name else "A network of CNTK."
    return MODEL.format(
        title=title,
        helpers="".join(f"\n{SOURCES[each]}\n" for each in sorted(written.helpers)),
        arguments=f"{takes} -> {gives}.",
        parameters=count,
        modules="\n".join(indent + line for line in lines) or f"{indent}pass",
        signature=", ".join(["self", *written.arguments]),
        forward="\n".join(body),
    )


def _made(attribute: str, layer: Layer) -> list[str]:
    told = "" if layer.name == attribute else f"  # {_plain(layer.name)}"
    if layer.make:
        lines = [f"self.{attribute} = {layer.make}"]
        short = len(lines[0]) + len(told) <= _WIDTH - 8
        lines = [lines[0] + told] if short else [told.strip(), *lines]
    else:
        shape = list(layer.tensors[""].node.shape[::-1])
        return [f'self.register_buffer("{attribute}", torch.zeros({shape})){told}']
    for name, tensor in layer.tensors.items():
        if tensor.node.learning_rate == 0 and not name.startswith("running_"):
            where = f"{attribute}.{name}" if name else attribute
            lines.append(f"self.{where}.requires_grad_(False)")
    return lines


def _shown(front: str, node: Node) -> str:
    return f"[{', '.join([front, *map(str, dims(node))])}]"


def _broken(line: str) -> list[str]:
    """A line that is too long, cut after commas of its outermost brackets; none with texts."""
    if len(line) <= _WIDTH or line.rstrip()[-1] not in ")]}" or "'" in line or '"' in line:
        return [line]
    close = line[-1]
    depth = 0
    for at in range(len(line) - 1, -1, -1):
        depth += (line[at] in ")]}") - (line[at] in "([{")
        if not depth:
            break
    parts, start, depth = list[str](), at + 1, 0
    for k in range(at + 1, len(line) - 1):
        depth += (line[k] in "([{") - (line[k] in ")]}")
        if line[k] == "," and not depth:
            parts.append(line[start:k].strip())
            start = k + 1
    parts.append(line[start:-1].strip())
    front = " " * (len(line) - len(line.lstrip()))
    return [line[: at + 1], *(f"{front}    {part}," for part in parts if part), front + close]


def _plain(name: str) -> str:
    """A name from outside without signs that would end a comment or docstring."""
    return "".join(c if c.isalnum() or c in "._-+ []" else "_" for c in name)


def config_of(written: Writer, name: str, count: int) -> dict[str, Any]:
    """The contents of `config.json`."""
    return {
        "architectures": ["CntkModel"],
        "model_type": "cntk",
        "torch_dtype": "float32",
        "origin": name,
        "inputs": {arg: list(dims(node)) for arg, node in written.arguments.items()},
        "outputs": {node.name: list(dims(node)) for node in written.net.outputs},
        "has_time": written.net.timed,
        "num_parameters": count,
        "parameters": {
            f"{attribute}.{key}" if key else attribute: tensor.node.name
            for attribute, layer in written.layers.items()
            for key, tensor in layer.tensors.items()
        },
        "notes": written.notes,
    }


def _recorded(net: CntkNet, written: Writer) -> dict[str, np.ndarray]:
    """Random inputs, and what our own computation gives for them.

    `check.py` puts an axis of one before them: one sequence, or one sample where there is no time.
    """
    rng, found = np.random.default_rng(0), dict[str, np.ndarray]()
    nodes = written.net.outputs
    timed = written.net.timed
    for case, rows in enumerate(_LENGTHS if timed else (1, 1)):
        fed = dict[str, Any]()
        for argument, node in written.arguments.items():
            array = rng.normal(size=(rows, *dims(node))).astype(np.float32)
            fed[node.name] = [array] if timed else array
            found[f"{case}.{argument}"] = array if timed else array[0]
        values = net.eval(fed, nodes)
        for node in nodes:
            value = values[node.name]
            array = np.asarray(value[0] if isinstance(value, list) else value, np.float32)
            found[f"{case}.output.{node.name}"] = array if timed else array[0]
    return found
