"""What a drawing of a network shows: layers, a row for each of their nodes, and arrows.

A layer is all nodes whose names begin alike before the first dot, as xconfig names them:
`tdnnf2.linear`, `tdnnf2.affine` ... A row stands for a node with the descriptor that feeds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..components.base.component import Component
from ..language.descriptor import Descriptor
from ..language.nodes import COMPONENT, DESCRIPTOR, DIM_RANGE, INPUT, NetworkNode
from .short_form import plain_source, short_parts, sources_at_t

OUTPUT = "output"
TRAINED = "trained"
OTHER = "other"


@dataclass
class Row:
    """A node.

    Attributes:
        name: of the node, whole.
        role: INPUT, TRAINED, OTHER or OUTPUT, which gives the color.
        what: the component's type without `Component`, with its frames; or the kind of node.
        dims: columns, `in→out` where they differ.
        reads: parts of the descriptor in short form; empty where the row above or an arrow has it.
        tip: its config line in full.
        sources: nodes that it reads, each once, in order.
        plain: the node that it reads as it is and no other, or "".
        unusual: what is unusual about it, or "".
    """

    name: str
    role: str
    what: str
    dims: str
    tip: str
    reads: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    plain: str = ""
    unusual: str = ""


@dataclass
class Layer:
    """Rows of one frame, and arrows between rows that do not follow each other: (from, to)."""

    name: str
    rows: list[Row] = field(default_factory=list)
    inner: list[tuple[int, int]] = field(default_factory=list)
    parameters: int = 0


@dataclass(frozen=True)
class Arrow:
    """Data that flows between layers.

    Attributes:
        source, target: numbers of the layers.
        rows: of the target, that read from the source.
        back: whether it closes a circle: a recurrence.
    """

    source: int
    target: int
    rows: tuple[int, ...]
    back: bool


@dataclass
class Drawing:
    """Layers, so sorted that all arrows but recurrent ones lead to later ones."""

    layers: list[Layer]
    arrows: list[Arrow]


def drawing(
    nodes: Iterable[NetworkNode],
    components: Mapping[str, Component],
    dims: Mapping[str, int],
    unusual: Mapping[str, str],
) -> Drawing:
    """What to draw of a network.

    Args:
        nodes: in order.
        components: by name.
        dims: columns of each node.
        unusual: component name -> what is unusual about it.
    """
    layers: dict[str, Layer] = {}
    before: NetworkNode | None = None
    rows: list[tuple[Row, Descriptor | None]] = []
    nodes = list(nodes)
    for node, after in zip(nodes, [*nodes[1:], None], strict=True):
        if node.kind != DESCRIPTOR or after is None or after.kind != COMPONENT:
            feed = before.descriptor if node.kind == COMPONENT and before else node.descriptor
            row = _row(node, feed, components, dims)
            row.unusual = unusual.get(node.component, "")
            rows.append((row, feed))
            name = _layer_name(node.name)
            layer = layers.setdefault(name, Layer(name))
            layer.rows.append(row)
            if node.kind == COMPONENT:
                layer.parameters += components[node.component].num_parameters
        before = node
    feeds = {row.name: feed for row, feed in rows if feed is not None}
    for layer in layers.values():
        layer.rows = _sorted_rows(layer.rows, feeds)
    ordered = _sorted_layers(layers, feeds)
    return Drawing(ordered, _arrows(ordered, feeds))


def _layer_name(node: str) -> str:
    return node.partition(".")[0] or node


def _row(
    node: NetworkNode,
    feed: Descriptor | None,
    components: Mapping[str, Component],
    dims: Mapping[str, int],
) -> Row:
    name = node.name
    dim = str(dims[node.name])
    if node.kind == INPUT:
        return Row(name, INPUT, "input", dim, f"input-node name={name} dim={dim}")
    if node.kind == DIM_RANGE:
        end = node.dim_offset + node.dim
        tip = f"dim-range-node name={name} input-node={node.source}"
        tip += f" dim-offset={node.dim_offset} dim={dim}"
        what = f"columns {node.dim_offset}:{end}"
        return Row(name, OTHER, what, dim, tip, [], [node.source], node.source)
    assert feed is not None
    sources = list(dict.fromkeys(feed.node_names()))
    plain = plain_source(feed)
    if node.kind == DESCRIPTOR:
        tip = f"output-node name={name} input={feed} dim={dim} objective={node.objective}"
        return Row(name, OUTPUT, f"output, {node.objective}", dim, tip, [], sources, plain)
    component = components[node.component]
    if component.input_dim != component.output_dim:
        dim = f"{component.input_dim}→{component.output_dim}"
    tip = f"component-node name={name} component={node.component} input={feed}\n"
    tip += f"component name={node.component} type={component.info()}"
    role = TRAINED if component.is_updatable else OTHER
    return Row(name, role, _what(component), dim, tip, [], sources, plain)


def _what(component: Component) -> str:
    """The type in few letters, with the frames that the component itself splices."""
    text = component.type.removesuffix("Component")
    offsets = getattr(component, "time_offsets", None)
    if offsets is None and hasattr(component, "height_in"):
        offsets = sorted({time for time, _ in getattr(component, "offsets", ())})
    return text if offsets in (None, [], [0]) else f"{text}[{','.join(map(str, offsets))}]"


def _sorted_rows(rows: list[Row], feeds: Mapping[str, Descriptor]) -> list[Row]:
    """Rows so that what is read at the same frame stands above; what reads it back stays below."""
    by_name = {row.name: row for row in rows}
    needs = {row.name: _needs_at_t(row, feeds) & by_name.keys() for row in rows}
    return [by_name[name] for name in _sorted(needs, needs)]


def _needs_at_t(row: Row, feeds: Mapping[str, Descriptor]) -> set[str]:
    return sources_at_t(feeds[row.name]) if row.name in feeds else set(row.sources)


def _sorted_layers(layers: Mapping[str, Layer], feeds: Mapping[str, Descriptor]) -> list[Layer]:
    """Layers after those that they read; circles are cut where another frame is read."""
    home = {row.name: layer.name for layer in layers.values() for row in layer.rows}
    needs: dict[str, set[str]] = {}
    at_t: dict[str, set[str]] = {}
    for name, layer in layers.items():
        needs[name] = {home[source] for row in layer.rows for source in row.sources} - {name}
        now = {source for row in layer.rows for source in _needs_at_t(row, feeds)}
        at_t[name] = {home[source] for source in now} - {name}
    return [layers[name] for name in _sorted(needs, at_t)]


def _sorted(needs: Mapping[str, set[str]], strict: Mapping[str, set[str]]) -> list[str]:
    """Names after what they need, else in order.

    Where a circle leaves none free, the first comes next that has all that it needs strictly,
    preferably one that also has something else that it needs.
    """
    done: dict[str, None] = {}
    rest = list(needs)
    while rest:
        free = next((name for name in rest if needs[name] <= done.keys()), "")
        if not free:
            begun = [name for name in rest if needs[name] & done.keys()]
            ready = [name for name in [*begun, *rest] if strict[name] <= done.keys()]
            free = (ready or begun or rest)[0]
        rest.remove(free)
        done[free] = None
    return list(done)


def _arrows(layers: list[Layer], feeds: Mapping[str, Descriptor]) -> list[Arrow]:
    """The arrows between layers; rows learn what they must show of their descriptors."""
    home = {row.name: number for number, layer in enumerate(layers) for row in layer.rows}
    arrows = []
    for target, layer in enumerate(layers):
        place = {row.name: number for number, row in enumerate(layer.rows)}
        readers: dict[int, list[int]] = {}
        for number, row in enumerate(layer.rows):
            above = layer.rows[number - 1].name if number else ""
            _tell(row, above, layers, home, feeds.get(row.name))
            for source in row.sources:
                if home[source] != target:
                    readers.setdefault(home[source], []).append(number)
                elif source != above:
                    layer.inner.append((place[source], number))
        for source, numbers in readers.items():
            arrows.append(Arrow(source, target, tuple(numbers), source > target))
    return arrows


def _tell(
    row: Row, above: str, layers: list[Layer], home: Mapping[str, int], feed: Descriptor | None
) -> None:
    """Put the descriptor in the row, unless the row above or an arrow to the first row has it."""
    if not row.sources or (above and row.plain == above):
        return
    if not above and row.plain and home[row.plain] != home[row.name]:
        if layers[home[row.plain]].rows[-1].name == row.plain:
            return
    naming = _naming(_layer_name(row.name))
    row.reads = [row.plain and naming(row.plain)] if feed is None else short_parts(feed, naming)


def _naming(layer: str) -> Callable[[str], str]:
    """Nodes of the layer without its name."""
    return lambda node: node.removeprefix(f"{layer}.") or node
