"""Nodes with parameters as PyTorch's layers: what makes them, their tensors, and the way back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....cntk.lower.kinds.images import Windows
from ....cntk.network.nodes import rules
from ....cntk.network.nodes.node import Node

Array = np.ndarray
Get = Callable[[Node], Array]
"""A parameter -> its value in CNTK's shape."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a module and the parameter that it holds.

    Attributes:
        node: the parameter. there: its value in CNTK's shape -> the tensor. back: the other way.
    """

    node: Node
    there: Callable[[Array], Array]
    back: Callable[[Array], Array]


@dataclass
class Layer:
    """A layer of the module.

    Attributes:
        name: the parameter that it is named after.
        make: the expression that makes it.
        tensors: by their names in the layer; "" for a tensor that is the layer itself.
        counts: names of whole numbers that PyTorch keeps beside.
        helper: the class in `SOURCES` that `make` needs.
        takes: nodes that it computes beside its own, such as the bias that follows a product.
    """

    name: str
    make: str
    tensors: dict[str, Tensor]
    counts: tuple[str, ...] = ()
    helper: str = ""
    takes: list[Node] = field(default_factory=list)


def trained(layer: Layer) -> bool:
    """Whether any of a layer's parameters learns."""
    return any(tensor.node.learning_rate != 0 for tensor in layer.tensors.values())


def arrays_of(layer: Layer, get: Get) -> dict[str, Array]:
    """The tensors of a layer."""
    found = {
        name: np.ascontiguousarray(tensor.there(get(tensor.node)), np.float32)
        for name, tensor in layer.tensors.items()
    }
    return found | {name: np.zeros((), np.int64) for name in layer.counts}


def reversed_dims(node: Node) -> Tensor:
    """A parameter as an array of its dimensions reversed, as values here are."""
    return Tensor(node, lambda a: a.T, lambda a: a.T)


def plain(node: Node) -> Layer:
    """A parameter as it is."""
    shape = list(node.shape[::-1])
    return Layer(node.name, f"nn.Parameter(torch.zeros({shape}))", {"": reversed_dims(node)})


def sizes_of_times(node: Node) -> tuple[int, int]:
    """The elements that a product gives for each column, and those that it sums over."""
    left = node.inputs[0]
    if node.operation == "LookupTable":
        return rules.matrix(left)
    shape: Sequence[int] = left.shape
    if node.operation == "TransposeTimes":
        shape = (1, shape[0]) if len(shape) == 1 else shape[::-1]
    rank = node.attributes["outputRank"]
    return math.prod(shape[:rank]), math.prod(shape[rank:])


def linear(node: Node, bias: Node | None, plus: Node | None) -> Layer:
    """A product with a parameter as nn.Linear, and the bias that is added after it."""
    weight = node.inputs[0]
    width, depth = sizes_of_times(node)
    shape, turned = weight.shape, node.operation == "TransposeTimes"

    def there(value: Array) -> Array:
        if turned:
            return value.reshape((depth, width), order="F").T
        return value.reshape((width, depth), order="F")

    def back(tensor: Array) -> Array:
        return (tensor.T if turned else tensor).reshape(shape, order="F")

    tensors = {"weight": Tensor(weight, there, back)}
    if bias is not None:
        tensors["bias"] = _vector(bias)
    more = "" if bias is not None else ", bias=False"
    takes = [] if plus is None else [plus]
    name = _common(weight.name, bias.name) if bias is not None else weight.name
    return Layer(name, f"nn.Linear({depth}, {width}{more})", tensors, takes=takes)


def _common(weight: str, bias: str) -> str:
    """The name of what holds both, if their names tell one; else the weight's."""
    front = weight.rpartition(".")[0]
    return front if front and bias.rpartition(".")[0] == front else weight


def _vector(node: Node) -> Tensor:
    return Tensor(node, lambda a: a.reshape(-1), lambda a: a.reshape(node.shape, order="F"))


def batch_norm(node: Node) -> Layer:
    """Batch normalisation of the columns of a sample, or of the channels of an image."""
    names = ("weight", "bias", "running_mean", "running_var")
    tensors = {name: _vector(child) for name, child in zip(names, node.inputs[1:5], strict=True)}
    features = math.prod(node.inputs[1].shape)
    make = f"BatchNorm({features}, eps={float(node.attributes['epsilon'])!r})"
    name = node.inputs[1].name.rpartition(".")[0] or node.name
    return Layer(name, make, tensors, ("num_batches_tracked",), "BatchNorm")


def convolution(node: Node, windows: Windows) -> Layer:
    """A convolution without padding, which stands before it."""
    kernel, maps = windows.kernel, math.prod(windows.maps)
    weight, rank = node.inputs[0], len(kernel) - 1

    def there(value: Array) -> Array:
        return value.reshape(-1, order="F").reshape((maps, *kernel))

    def back(tensor: Array) -> Array:
        return tensor.reshape(-1).reshape(weight.shape, order="F")

    options = [str(kernel[0]), str(maps), str(tuple(kernel[1:]))]
    if set(windows.stride[1:]) != {1}:
        options.append(f"stride={tuple(windows.stride[1:])}")
    make = f"nn.Conv{rank}d({', '.join(options)}, bias=False)"
    return Layer(weight.name, make, {"weight": Tensor(weight, there, back)})


def statistic(node: Node) -> Layer:
    """What was computed from the data before training: a buffer."""
    return Layer(node.name, "", {"": reversed_dims(node)})


def state_name(attribute: str, tensor: str) -> str:
    """The name of a tensor in the module's state."""
    return f"{attribute}.{tensor}" if tensor else attribute


def state_of(layers: Mapping[str, Layer], get: Get) -> dict[str, Any]:
    """The module's state, by attribute and tensor."""
    return {
        state_name(attribute, name): array
        for attribute, layer in layers.items()
        for name, array in arrays_of(layer, get).items()
    }
