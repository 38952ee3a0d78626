"""What a network is, in a few lines: contexts, inputs, outputs, parameters, what is unusual."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..components.base.component import Component
from ..components.batch_norm import BatchNormComponent
from ..language.nodes import COMPONENT, NetworkNode, input_name, orphan_names

_MOST_NAMES = 4


def unusual_components(components: Mapping[str, Component]) -> dict[str, str]:
    """Component name -> what is unusual about it, for those with something unusual.

    That is: numbers that are infinite or NaN; batch norm without statistics, which test mode needs,
    or in test mode already; trained parameters that are all zero.
    """
    remarks = {name: _unusual(component) for name, component in components.items()}
    return {name: remark for name, remark in remarks.items() if remark}


def _unusual(component: Component) -> str:
    held = [value for value in vars(component).values() if isinstance(value, np.ndarray)]
    numbers = [value for value in held if value.dtype.kind == "f"]
    wrong = sum(value.size - np.count_nonzero(np.isfinite(value)) for value in numbers)
    if wrong:
        return f"{wrong} of {sum(value.size for value in numbers)} numbers infinite or NaN"
    if isinstance(component, BatchNormComponent):
        if component.test_mode:
            return "batch norm in test mode"
        return "" if component.count > 0 else "batch norm without statistics (not trained yet)"
    if component.is_updatable and component.num_parameters and not component.vectorize().any():
        return "all parameters zero"
    return ""


def summary_lines(
    nodes: Sequence[NetworkNode],
    components: Mapping[str, Component],
    dims: Mapping[str, int],
    outputs: Iterable[NetworkNode],
    contexts: str,
) -> list[str]:
    """The summary of a network, one fact a line.

    Args:
        nodes: in order.
        components: by name.
        dims: columns of each node.
        outputs: the output nodes.
        contexts: of the network, or why it has none.
    """
    trained = sum(component.num_parameters for component in components.values())
    count = sum(node.kind == COMPONENT for node in nodes)
    where = "" if count == len(components) else f" in {count} nodes"
    lines = [
        f"context     {contexts}",
        *(f"input       {n.name}, dim {n.dim}" for n in nodes if n.kind == "input"),
        *(f"output      {n.name}, dim {dims[n.name]}, {n.objective}" for n in outputs),
        f"size        {len(components)} components{where}, {trained:,} parameters",
    ]
    return lines + [f"unusual     {line}" for line in _unusual_lines(nodes, components)]


def _unusual_lines(nodes: Sequence[NetworkNode], components: Mapping[str, Component]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for name, remark in unusual_components(components).items():
        groups.setdefault(remark, []).append(name)
    used = {node.component for node in nodes}
    feeding = {input_name(node.name) for node in nodes if node.kind == COMPONENT}
    idle = [name for name in orphan_names(nodes) if name not in feeding]
    if idle:
        groups["used by no output"] = idle
    spare = [name for name in components if name not in used]
    if spare:
        groups["component of no node"] = spare
    return [f"{remark}: {_listed(names)}" for remark, names in groups.items()]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
