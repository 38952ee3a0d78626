"""The function of a CNTK network in PyTorch's words: layers, and lines that apply them."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ....cntk.lower.emitter import dims, size
from ....cntk.lower.kinds.delays import delay_start, delay_steps
from ....cntk.lower.kinds.images import Windows
from ....cntk.network.nodes.analysis import Loop
from ....cntk.network.nodes.node import Node
from ..folder import NotInTorchError
from . import modules
from .expressions import RULES, shaped
from .modules import Layer
from .pruning import Pruned
from .windows import image_pool, padded_conv

_PRODUCTS = ("Times", "TransposeTimes", "QuantizedTimes", "LookupTable")
_MOST_NAMED = 12
_UNNAMED = re.compile(r"\w*Args\[\d+\]|_|x|arrayOfFunctions\[\d+\]")


class Writer:
    """Writes the function of a network.

    Args:
        net: what it computes.

    Attributes:
        layers: by attribute of the module, in order.
        arguments: of the function: attribute-like names of inputs, and their nodes.
        lines: of the function.
        helpers: names of `SOURCES` that they use.
        notes: what the module does not do in training as the network does.

    Raises:
        NotInTorchError: nodes that have no form here; all are named.
    """

    def __init__(self, net: Pruned) -> None:
        self.net = net
        self.layers: dict[str, Layer] = {}
        self.lines: list[str] = []
        self.helpers: set[str] = set()
        self.notes: list[str] = []
        self.arguments: dict[str, Node] = {}
        self._taken = {"self", "n", "t", "torch", "nn", "F", "states", "rows", "load", "save"}
        self._texts: dict[Node, str] = {}
        self._layer_of: dict[Node, str] = {}
        self._absorbed: set[Node] = set()
        self._loop: Loop | None = None
        self._done: set[int] = set()
        self._uses_sizes = False
        self._uses = Counter(child for node in net.order for child in node.inputs)
        self._readers: dict[Node, list[Node]] = {}
        for node in net.order:
            for child in node.inputs:
                self._readers.setdefault(child, []).append(node)
        self._check()
        for node in net.inputs:
            name = self._unique(node.name)
            self.arguments[name] = node
            self._texts[node] = name
        if not net.inputs:
            raise NotInTorchError("the outputs read no input")
        self._plan_layers()
        for node in net.order:
            self._write(node)
        self._finish()

    def _check(self) -> None:
        told: list[str] = []
        for node in self.net.order:
            why = self._why_not(node)
            if why:
                told.append(f"{node.name} ({node.operation}){why}")
        if told:
            more = len(told) - _MOST_NAMED
            listed = "; ".join(told[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
            raise NotInTorchError(f"no form in PyTorch here: {listed}")

    def _why_not(self, node: Node) -> str:
        operation = node.operation
        if operation in ("PastValue", "FutureValue"):
            (child, *initial) = node.inputs
            if dims(child) != dims(node):
                return ": its initial state is wider than its input"
            if initial and initial[0].axis is not None:
                return ": its initial state has samples"
            return ""
        if operation in _PRODUCTS:
            left, right = node.inputs
            return "" if left.axis is None and right.axis is not None else ": operands of this kind"
        if operation == "Convolution":
            return padded_conv(node)[1]
        if operation == "Pooling":
            return image_pool(node)[1]
        known = (*RULES, "LearnableParameter", "Dropout", "BatchNormalization")
        return "" if operation in known or node.is_input or node.kind.precompute else ": not known"

    # -- layers ----------------------------------------------------------------------------------

    def _plan_layers(self) -> None:
        for node in self.net.order:
            layer = self._own_layer(node)
            if layer is not None:
                self._add(layer, node)
        for node in self.net.order:
            if node.is_parameter and node not in self._layer_of:
                held = any(
                    tensor.node is node
                    for one in self.layers.values()
                    for tensor in one.tensors.values()
                )
                if not held:
                    self._add(modules.plain(node), node)
            elif node.kind.precompute:
                self._add(modules.statistic(node), node)

    def _add(self, layer: Layer, node: Node) -> None:
        attribute = self._unique(layer.name)
        self.layers[attribute] = layer
        self._layer_of[node] = attribute
        if layer.helper:
            self.helpers.add(layer.helper)
        for plus in layer.takes:
            self._absorbed.add(node)
            self._layer_of[plus] = attribute

    def _alone(self, node: Node) -> bool:
        return node.is_parameter and self._uses[node] == 1 and node not in self.net.outputs

    def _own_layer(self, node: Node) -> Layer | None:
        if node.operation in _PRODUCTS and self._alone(node.inputs[0]):
            return modules.linear(node, *self._bias_after(node))
        if node.operation == "BatchNormalization":
            if not all(self._alone(child) for child in node.inputs[1:5]):
                raise NotInTorchError(f"{node.name}: its parameters have other readers")
            self.notes.append(
                f"{node.name}: in training the running statistics follow with PyTorch's momentum"
            )
            return modules.batch_norm(node)
        if node.operation == "Convolution":
            if not self._alone(node.inputs[0]):
                raise NotInTorchError(f"{node.name}: its kernel is computed, or has other readers")
            return modules.convolution(node, Windows(node, node.inputs[1].shape, node.shape))
        if node.operation == "Dropout":
            return Layer(node.name, f"nn.Dropout({node.attributes['dropoutRate']!r})", {})
        return None

    def _bias_after(self, node: Node) -> tuple[Node | None, Node | None]:
        """The bias that is added to a product and nothing else is made of, and that sum."""
        readers = self._readers.get(node, [])
        if len(readers) != 1 or readers[0].operation != "Plus" or node in self.net.outputs:
            return None, None
        (plus,) = readers
        bias = plus.inputs[1] if plus.inputs[0] is node else plus.inputs[0]
        width, _ = modules.sizes_of_times(node)
        same = self.net.loops.get(node) is self.net.loops.get(plus)
        fits = bias is not node and self._alone(bias) and size(bias) == width == size(node)
        if same and fits and size(plus) == width and len(bias.shape) <= len(plus.shape):
            return bias, plus
        return None, None

    # -- values ----------------------------------------------------------------------------------

    def text(self, node: Node) -> str:
        """The expression of a node's value."""
        found = self._texts.get(node)
        if found is None:
            found = f"self.{self._layer_of[node]}"
        return found

    def like(self, node: Node) -> str:
        """The dimensions of samples at a node, as arguments."""
        self._uses_sizes = True
        return "n, t" if self.net.timed and self._loop is None else "n"

    def _write(self, node: Node) -> None:
        loop = self.net.loops.get(node)
        if loop is not None:
            if id(loop) not in self._done:
                self._write_loop(loop)
            return
        if not (node.is_input or node.is_parameter or node.kind.precompute):
            self._write_node(node, self.lines, "")

    def _write_node(self, node: Node, lines: list[str], indent: str) -> None:
        if node in self._absorbed:
            return
        name = self._unique(self._short(node))
        lines.append(f"{indent}{name} = {self._expression(node)}")
        self._texts[node] = name

    def _expression(self, node: Node) -> str:
        if node in self._layer_of:
            return self._applied(node)
        if node.operation in _PRODUCTS:
            return self._product(node)
        if node.operation in ("PastValue", "FutureValue"):
            self.helpers.add("delayed")
            start = self.text(node.inputs[1]) if len(node.inputs) > 1 else repr(_start(node))
            steps = delay_steps(node) * node.delay
            return f"delayed({self.text(node.inputs[0])}, {steps}, {start})"
        if node.operation == "Pooling":
            call, _ = image_pool(node)
            return self._on_images(node, node.inputs[0], call)
        return RULES[node.operation](self, node)

    def _applied(self, node: Node) -> str:
        """A layer's own node, or the sum after it."""
        layer, shape = f"self.{self._layer_of[node]}", dims(node)
        if node.operation == "Plus":
            node = next(child for child in node.inputs if child in self._absorbed)
        if node.operation in _PRODUCTS:
            width, depth = modules.sizes_of_times(node)
            right = node.inputs[1]
            rest = size(right) // depth
            rows = (depth,) if rest == 1 else (rest, depth)
            x = shaped(self.text(right), dims(right), rows)
            return shaped(f"{layer}({x})", (*rows[:-1], width), shape)
        if node.operation == "BatchNormalization":
            data = node.inputs[0]
            features = size(node.inputs[1])
            places = size(data) // features
            shape = (features,) if places == 1 else (features, places)
            x = shaped(self.text(data), dims(data), shape)
            more = "" if places == 1 else ", channels_first=True"
            return shaped(f"{layer}({x}{more})", shape, dims(node))
        if node.operation == "Convolution":
            call = padded_conv(node)[0].replace("{layer}", layer)
            return self._on_images(node, node.inputs[1], call)
        return f"{layer}({self.text(node.inputs[0])})"

    def _on_images(self, node: Node, child: Node, call: str) -> str:
        """A call on images [N, C, ...], whatever dimensions samples have."""
        x = self.text(child)
        if self.net.timed and self._loop is None:
            self._uses_sizes = True
            return f"{call.replace('{x}', f'{x}.flatten(0, 1)')}.unflatten(0, (n, t))"
        return call.replace("{x}", x)

    def _product(self, node: Node) -> str:
        left, right = node.inputs
        width, depth = modules.sizes_of_times(node)
        rest = size(right) // depth
        turned = node.operation == "TransposeTimes"
        weight = shaped(self.text(left), dims(left), (width, depth) if turned else (depth, width))
        rows = (depth,) if rest == 1 else (rest, depth)
        x = shaped(self.text(right), dims(right), rows)
        made = f"F.linear({x}, {weight if turned else f'{weight}.T'})"
        return shaped(made, (*rows[:-1], width), dims(node))

    # -- loops -----------------------------------------------------------------------------------

    def _write_loop(self, loop: Loop) -> None:
        self._done.add(id(loop))
        self.helpers.add("over_time")
        inside = [node for node in loop.nodes if node in self.net.loops]
        rows = self._rows_of(inside)
        delays = [node for node in inside if node.operation in ("PastValue", "FutureValue")]
        step = self._unique("step")
        outer = {node: self._texts.get(node) for node in rows}
        body: list[str] = []
        states: list[list[str]] = []
        for node in delays:
            name = self._unique(self._short(node))
            count = delay_steps(node)
            states.append([name if k == count - 1 else self._unique(name) for k in range(count)])
            self._texts[node] = name
        given: list[str] = []
        for node in rows:
            given.append(self._unique(f"{self._short(node)}_t"))
            self._texts[node] = given[-1]
        self._loop = loop
        for node in inside:
            if node not in delays:
                self._write_node(node, body, "    ")
        after = [self._after(node, held) for node, held in zip(delays, states, strict=True)]
        outs = self._read_outside(inside)
        found = [self.text(node) for node in outs]
        self._loop = None
        for node in rows:
            text = outer[node]
            assert text is not None
            self._texts[node] = text
        self.lines.append("")
        self.lines.append(f"def {step}(states, rows):")
        self.lines.append(f"    {_unpacked([s for held in states for s in held])} = states")
        self.lines.append(f"    {_unpacked(given)} = rows")
        self.lines += body
        flat = ", ".join(each for group in after for each in group)
        self.lines.append(f"    return [{flat}], [{', '.join(found)}]")
        self.lines.append("")
        self._uses_sizes = True
        initial = ", ".join(
            one
            for node, held in zip(delays, states, strict=True)
            for one in self._starts(node, len(held))
        )
        self.lines.append(f"states = [{initial}]")
        names = [self._unique(self._short(node)) for node in outs]
        back = ", backward=True" if loop.direction < 0 else ""
        taken = ", ".join(self.text(node) for node in rows)
        self.lines.append(f"{_unpacked(names)} = over_time({step}, states, [{taken}]{back})")
        for node, name in zip(outs, names, strict=True):
            self._texts[node] = name

    def _rows_of(self, inside: Sequence[Node]) -> list[Node]:
        """What steps read from outside that has samples; some input, if there is nothing."""
        there = set(inside)
        found = dict.fromkeys(
            child
            for node in inside
            if node.operation not in ("PastValue", "FutureValue")
            for child in node.inputs
            if child not in there and child.axis is not None and child not in self._absorbed
        )
        return list(found) or self.net.inputs[:1]

    def _after(self, node: Node, held: list[str]) -> list[str]:
        """The states of a delay after a step."""
        return [self.text(node.inputs[0]), *held[:-1]]

    def _starts(self, node: Node, count: int) -> list[str]:
        shape = ", ".join(map(str, dims(node)))
        first = next(iter(self.arguments))
        if len(node.inputs) > 1:
            one = f"{self.text(node.inputs[1])}.expand(n, {shape})"
        else:
            one = f"{first}.new_full((n, {shape}), {_start(node)!r})"
        return [one] * count

    def _read_outside(self, inside: Sequence[Node]) -> list[Node]:
        there = set(inside)
        return [
            node
            for node in inside
            if node not in self._absorbed
            and (
                node in self.net.outputs
                or any(reader not in there for reader in self._readers.get(node, []))
            )
        ]

    # -- the end ---------------------------------------------------------------------------------

    def _finish(self) -> None:
        if self._uses_sizes:
            first = next(iter(self.arguments))
            sizes = f"n, t = {first}.shape[:2]" if self.net.timed else f"n = {first}.shape[0]"
            self.lines.insert(0, sizes)
        texts = [self.text(node) for node in self.net.outputs]
        if len(texts) == 1:
            self.lines.append(f"return {texts[0]}")
        else:
            pairs = zip(self.net.outputs, texts, strict=True)
            self.lines.append(f"return {{{', '.join(f'{n.name!r}: {x}' for n, x in pairs)}}}")

    def _short(self, node: Node) -> str:
        """A name for a value: the last part of the node's, if that tells anything."""
        if node in self.net.outputs:
            return node.name
        last = node.name.rpartition(".")[2]
        return node.operation.lower() if _UNNAMED.fullmatch(last) else last

    def _unique(self, name: str) -> str:
        name = name.replace("arrayOfFunctions", "layer")
        plain = re.sub(r"_*\W+_*", "_", name, flags=re.ASCII).strip("_") or "value"
        if plain[0].isdigit() or keyword.iskeyword(plain) or plain in _OF_MODULES:
            plain = f"n_{plain}"
        found, count = plain, 1
        while found in self._taken:
            count += 1
            found = f"{plain}_{count}"
        self._taken.add(found)
        return found


_OF_MODULES = frozenset(
    "training forward parameters buffers children modules state_dict train eval to float double"
    " half type cpu cuda apply compile share_memory zero_grad register_buffer requires_grad_"
    " add_module named_parameters extra_repr".split()
)
"""Names of nn.Module that no layer may have."""


def _start(node: Node) -> float:
    """The number that a delay begins with, in as few digits as tell it."""
    return float(str(np.float32(delay_start(node))))


def _unpacked(names: Sequence[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)
