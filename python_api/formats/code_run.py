"""Generated NetBuilder code, built and run, so that it can be compared with its source.

The code is text that this package made, of names that may come from anywhere. So nothing of it is
run before it is seen to hold only what such code is made of.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from ...framework.base.errors import RunError
from ...framework.ir.op_list import OpList
from ...framework.ir.registry import lookup
from ..builder import NetBuilder

_STATEMENTS = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.Expr, ast.With,
    ast.withitem, ast.For, ast.Import, ast.ImportFrom, ast.alias,
)  # fmt: skip
_EXPRESSIONS = (
    ast.Name, ast.Load, ast.Store, ast.Constant, ast.Call, ast.keyword, ast.Attribute, ast.List,
    ast.Tuple, ast.Dict, ast.BinOp, ast.UnaryOp, ast.USub, ast.Add, ast.Sub, ast.Mult, ast.Div,
    ast.MatMult,
)  # fmt: skip
_MODULES = {"numpy", "opscope", "safetensors.numpy", "opscope.framework.ir.registry"}


def built(text: str, target: str) -> OpList:
    """The net that a module builds.

    Raises:
        RunError: the module holds something else than generated code does, or does not build.
    """
    tree = _checked(text, target)
    build = [
        part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name == "build"
    ]
    arrays = SimpleNamespace(array=np.array)
    names: dict[str, Any] = {"NetBuilder": NetBuilder, "np": arrays, "lookup": lookup}
    names["__builtins__"] = {"float": float}
    build[0].returns = None
    module = ast.fix_missing_locations(ast.Module(cast("list[ast.stmt]", build), []))
    try:
        exec(compile(module, target, "exec"), names)  # noqa: S102  only what `_checked` allows
        make = cast("Callable[[], NetBuilder]", names["build"])
        return make().op_list
    except Exception as error:
        raise RunError(f"{target}: not written: the code does not build: {error}") from error


def _checked(text: str, target: str) -> ast.Module:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        good = isinstance(node, (*_STATEMENTS, *_EXPRESSIONS))
        if isinstance(node, ast.Import):
            good = all(alias.name in _MODULES for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            good = node.module in _MODULES
        elif isinstance(node, (ast.Name, ast.Attribute)):
            name = node.id if isinstance(node, ast.Name) else node.attr
            good = name == "_" or not name.startswith("__")
        elif isinstance(node, ast.FunctionDef):
            good = node.name in ("build", "load") and not node.decorator_list
        if not good:
            line = getattr(node, "lineno", 0)
            raise RunError(
                f"{target}: not written: line {line} of the code would hold something else than"
                " calls that build a net"
            )
    return tree
