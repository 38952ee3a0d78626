"""Blocks that a program calls as operators: inlined, those under `torch.no_grad()` for good."""

from __future__ import annotations

import copy
import sys
from typing import Any

_UNSEEN = "wrap_with_set_grad_enabled"
_CAST = "wrap_with_autocast"
_BLOCKS = {
    _UNSEEN: 1,
    _CAST: 4,
    "tag_activation_checkpoint": 0,
    "wrap_activation_checkpoint": 0,
    "wrap": 0,
    "invoke_subgraph": 0,
}
"""Operators that call a block once, and the place of the block among their arguments."""
_NAMED = ("invoke_subgraph",)
"""Those whose block is followed by a name for it."""


def inlined(program: Any) -> Any:
    """The program with its blocks inlined: a copy, where it has any.

    `run_decompositions` inlines them as well, but forgets where no gradient passes: blocks go
    first. One whose operators are cast (`torch.autocast`) stays: PyTorch writes the casts out.
    """
    modules = list(_graph_modules(program.graph_module))
    if not any(_is_block(node) for module in modules for node in module.graph.nodes):
        return program
    program = copy.deepcopy(program)
    for module in _graph_modules(program.graph_module):
        while node := next((n for n in module.graph.nodes if _is_block(n)), None):
            _inline(module, node)
        module.graph.lint()
        module.recompile()
    return program


def casts(program: Any) -> bool:
    """Whether a program has blocks whose operators are cast."""
    return any(
        _name(node) == _CAST
        for module in _graph_modules(program.graph_module)
        for node in module.graph.nodes
    )


def _graph_modules(module: Any) -> list[Any]:
    """A module and those inside that have graphs, the inner ones last."""
    return [each for each in module.modules() if hasattr(each, "graph")]


def _name(node: Any) -> str:
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def _is_block(node: Any) -> bool:
    name = _name(node)
    return name in _BLOCKS and not (name == _CAST and node.args[2])


def _inline(module: Any, block: Any) -> None:
    graph = module.graph
    at = _BLOCKS[_name(block)]
    holder, *given = block.args[at:]
    given = given[1:] if _name(block) in _NAMED else given
    inside = module.get_submodule(holder.target)
    holders = [n for n in inside.graph.nodes if n.op == "placeholder"]
    values = dict(zip(holders, given, strict=True))
    with graph.inserting_before(block):
        for node in inside.graph.nodes:
            if node.op == "get_attr":  # a graph inside: the module around takes it over
                name = f"{holder.target}_{node.target}"
                module.add_module(name, inside.get_submodule(node.target))
                values[node] = graph.get_attr(name)
        outputs = graph.graph_copy(inside.graph, values)
        whole = not isinstance(outputs, (tuple, list))
        if _name(block) == _UNSEEN and not block.args[0]:
            outputs = [value if value in given else _detached(graph, value) for value in outputs]
    if whole:
        block.replace_all_uses_with(outputs)
    for user in list(block.users):
        user.replace_all_uses_with(outputs[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(block)
    if not holder.users:
        graph.erase_node(holder)


def _detached(graph: Any, value: Any) -> Any:
    detach = sys.modules["torch"].ops.aten.detach.default
    node = graph.call_function(detach, (value,))
    node.meta = dict(value.meta)
    return node
