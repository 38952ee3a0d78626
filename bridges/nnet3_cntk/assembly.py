"""Putting an nnet3 network together from values: columns of nodes at time offsets.

A value is a list of blocks side by side; a block is a sum of nodes, each at an offset in time and
with a scale: what a descriptor of nnet3 can say. Asking for a component on a value that is
another one's, shifted in time, gives that other node, shifted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...nnet3.components import Component, new_component
from ...nnet3.language.config import ConfigLine, is_valid_name, split_lines
from ...nnet3.language.descriptor import format_scale
from ...nnet3.language.nodes import input_name, nodes_from_lines
from ...nnet3.network.nnet import Nnet


@dataclass(frozen=True)
class Term:
    """`scale` times a node, `offset` frames later; or, if `fixed`, always its frame 0."""

    node: str
    offset: int = 0
    scale: float = 1.0
    fixed: bool = False

    def __str__(self) -> str:
        text = self.node if self.scale == 1 else f"Scale({format_scale(self.scale)}, {self.node})"
        if self.fixed:
            return f"ReplaceIndex({text}, t, 0)"
        return f"Offset({text}, {self.offset})" if self.offset else text

    def shifted(self, frames: int) -> Term:
        """The term some frames later."""
        return self if self.fixed else replace(self, offset=self.offset + frames)


@dataclass(frozen=True)
class Block:
    """A sum of terms of `dim` columns."""

    terms: tuple[Term, ...]
    dim: int

    def __str__(self) -> str:
        text = str(self.terms[-1])
        for term in self.terms[-2::-1]:
            text = f"Sum({term}, {text})"
        return text


Value = tuple[Block, ...]


def width(value: Value) -> int:
    """Columns of a value."""
    return sum(block.dim for block in value)


def shifted(value: Value, frames: int) -> Value:
    """The value some frames later."""
    return tuple(
        replace(block, terms=tuple(term.shifted(frames) for term in block.terms)) for block in value
    )


def scaled(value: Value, factor: float) -> Value:
    """The value times a number."""
    factor = float(np.float32(factor))
    return tuple(
        replace(block, terms=tuple(replace(t, scale=t.scale * factor) for t in block.terms))
        for block in value
    )


def _text(value: Value) -> str:
    return str(value[0]) if len(value) == 1 else f"Append({', '.join(map(str, value))})"


def _middle(value: Value) -> int:
    offsets = [term.offset for block in value for term in block.terms if not term.fixed]
    return (min(offsets) + max(offsets)) // 2 if offsets else 0


def make_component(type: str, config: str = "", **values: Any) -> Component:
    """A component of Kaldi's type, configured by a line, then with these attributes."""
    component = new_component(type)
    component.init_from_config(ConfigLine(config), np.random.default_rng(0))
    for name, value in values.items():
        own = np.array(value, order="C") if isinstance(value, np.ndarray) else value
        setattr(component, name, own)
    return component


class Assembly:
    """A network that grows node by node."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[str, Value]] = {}  # config line, what it reads
        self._components: dict[str, Component] = {}
        self._names: set[str] = set()
        self._component_names: dict[Hashable, str] = {}
        self._shared: dict[Hashable, str] = {}
        self._ranges: dict[str, tuple[str, int]] = {}  # dim-range node -> source, first column
        self._permuted: dict[str, tuple[Value, Sequence[int]]] = {}  # node -> source, its columns

    def name(self, wanted: str) -> str:
        """A name that Kaldi allows and that no node has, as near to `wanted` as can be."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", wanted)
        if not is_valid_name(name):
            name = f"_{name}"
        unique = name
        number = 1
        while not self._names.isdisjoint((unique, input_name(unique))):
            number += 1
            unique = f"{name}_{number}"
        self._names |= {unique, input_name(unique)}
        return unique

    def reserve(self, *names: str) -> None:
        """Keep names for nodes to come: no other node gets them."""
        for name in names:
            self._names |= {name, input_name(name)}

    def input(self, name: str, dim: int, frames: range = range(1), fixed: bool = False) -> Value:
        """An input node with a name of `reserve`, of which these frames stand side by side; a
        `fixed` one has a single frame for all."""
        self._nodes[name] = f"input-node name={name} dim={dim}", ()
        return tuple(Block((Term(name, offset, fixed=fixed),), dim) for offset in frames)

    def component(
        self,
        name: str,
        key: Hashable,
        value: Value,
        make: Callable[[], Component],
        shared: bool = True,
    ) -> Value:
        """A component applied to a value: one node for each key and value, whatever the value's
        place in time. Nodes of one key share their component, if `shared`."""
        middle = _middle(value)
        value = shifted(value, -middle)
        owner = key if shared else (key, value)
        node = self._shared.get((key, value))
        if node is None:
            node = self._shared[key, value] = self.name(name)
            if owner not in self._component_names:
                self._component_names[owner] = node
                self._components[node] = make()
            component = self._component_names[owner]
            line = f"component-node name={node} component={component} input={_text(value)}"
            self._nodes[node] = line, value
        component = self._component_names[owner]
        return (Block((Term(node, middle),), self._components[component].output_dim),)

    def copy(self, name: str, value: Value) -> Value:
        """The value as a node of its own."""
        dim = width(value)
        make = partial(make_component, "NoOpComponent", f"dim={dim}")
        return self.component(name, "copy", value, make, shared=False)

    def permute(self, name: str, value: Value, order: Sequence[int]) -> Value:
        """Columns in another order: column i of the result is column `order[i]`.

        A permutation of a permutation becomes a single one.
        """
        first = value[0].terms[0]
        single = len(value) == len(value[0].terms) == first.scale == 1
        if single and first.node in self._permuted:
            source, before = self._permuted[first.node]
            value = shifted(source, first.offset)
            order = [before[i] for i in order]
        if list(order) == list(range(len(order))):
            return value
        config = f"column-map={','.join(map(str, order))}"
        make = partial(make_component, "PermuteComponent", config)
        result = self.component(name, ("permute", tuple(order)), value, make, shared=False)
        (term,) = result[0].terms
        self._permuted[term.node] = shifted(value, -term.offset), order
        return result

    def columns(self, value: Value, begin: int, count: int) -> Value:
        """Some columns of a value."""
        blocks = []
        first = 0
        for block in value:
            low = max(begin - first, 0)
            high = min(begin + count - first, block.dim)
            first += block.dim
            if low == 0 and high == block.dim:
                blocks.append(block)
            elif low < high:
                terms = (self._range(term, low, high - low) for term in block.terms)
                blocks.append(Block(tuple(terms), high - low))
        return tuple(blocks)

    def _range(self, term: Term, begin: int, count: int) -> Term:
        """A term of a dim-range-node, made where it is needed first."""
        source, before = self._ranges.get(term.node, (term.node, 0))
        begin += before
        key = ("columns", source, begin, count)
        node = self._shared.get(key)
        if node is None:
            node = self._shared[key] = self.name(f"{source}.columns{begin}-{begin + count - 1}")
            self._ranges[node] = source, begin
            line = f"dim-range-node name={node} input-node={source}"
            line = f"{line} dim-offset={begin} dim={count}"
            self._nodes[node] = line, (Block((Term(source),), count),)
        return replace(term, node=node)

    def sum(self, name: str, values: Sequence[Value]) -> Value:
        """The sum of values of one width."""
        first, *others = values
        for number, other in enumerate(others):
            if [b.dim for b in first] != [b.dim for b in other]:
                first = self._whole(f"{name}.0", first)
                other = self._whole(f"{name}.{number + 1}", other)
            if not _can_add(first, other):
                other = self.copy(f"{name}.{number + 1}", other)
                first = self._whole(f"{name}.0", first)
            first = tuple(
                Block((*a.terms, *b.terms), a.dim) for a, b in zip(first, other, strict=True)
            )
        return first

    def _whole(self, name: str, value: Value) -> Value:
        return value if len(value) == 1 else self.copy(name, value)

    def network(self, outputs: Sequence[tuple[str, Value]]) -> Nnet:
        """The network of what these values, its output nodes, need.

        Raises:
            FormatError, ShapeError: its parts do not go together.
        """
        needed = set()
        waiting = [value for _, value in outputs]
        while waiting:
            for block in waiting.pop():
                new = {term.node for term in block.terms} - needed
                needed |= new
                waiting += [self._nodes[node][1] for node in new]
        lines = [line for node, (line, _) in self._nodes.items() if node in needed]
        lines += [f"output-node name={name} input={_text(value)}" for name, value in outputs]
        nnet = Nnet()
        nnet.nodes = nodes_from_lines(split_lines("\n".join(lines)))
        used = {node.component for node in nnet.nodes}
        nnet.components = {k: c for k, c in self._components.items() if k in used}
        nnet.check()
        return nnet


def _can_add(one: Value, other: Value) -> bool:
    """Whether the descriptor of the sum reads each node with one scale, as Kaldi demands."""
    for a, b in zip(one, other, strict=True):
        scales: dict[str, float] = {}
        for term in (*a.terms, *b.terms):
            if scales.setdefault(term.node, term.scale) != term.scale:
                return False
    return True
