"""Blocks under `torch.no_grad()`: inlined, with no gradient through what they give."""

from __future__ import annotations

import copy
import sys
from typing import Any

_BLOCK = "wrap_with_set_grad_enabled"


def inlined(program: Any) -> Any:
    """The program with its blocks inlined: a copy, where it has any.

    `run_decompositions` inlines them as well, but forgets that no gradient passes: blocks go first.
    One that holds modules of its own stays, and is refused as unknown.
    """
    if not any(_is_block(node) for node in program.graph.nodes):
        return program
    program = copy.deepcopy(program)
    module = program.graph_module
    while node := next((n for n in module.graph.nodes if _is_plain(module, n)), None):
        _inline(module, node)
    module.graph.lint()
    module.recompile()
    return program


def _is_block(node: Any) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") == _BLOCK


def _is_plain(module: Any, node: Any) -> bool:
    """Whether a node is a block of operators alone."""
    return _is_block(node) and all(n.op != "get_attr" for n in _graph_of(module, node).nodes)


def _graph_of(module: Any, node: Any) -> Any:
    return module.get_submodule(node.args[1].target).graph


def _inline(module: Any, block: Any) -> None:
    graph, (enabled, holder, *given) = module.graph, block.args
    inner = _graph_of(module, block)
    values = dict(zip((n for n in inner.nodes if n.op == "placeholder"), given, strict=True))
    with graph.inserting_before(block):
        outputs = graph.graph_copy(inner, values)
        if not enabled:
            outputs = [value if value in given else _detached(graph, value) for value in outputs]
    for user in list(block.users):
        user.replace_all_uses_with(outputs[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(block)
    graph.erase_node(holder)


def _detached(graph: Any, value: Any) -> Any:
    detach = sys.modules["torch"].ops.aten.detach.default
    node = graph.call_function(detach, (value,))
    node.meta = dict(value.meta)
    return node
