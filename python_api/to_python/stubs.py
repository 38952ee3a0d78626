"""Writes stubs for type checkers and editors, of names that exist at run time only.

They are the methods of NetBuilder (methods.pyi of the builder), and the public names of the package
and of its front ends, which are looked up on first use (their __init__.pyi).
`python build.py stubs` writes all; a test compares them with the registry.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ... import cntk, nnet3, speech
from ...framework.ir.registry import OperatorDef, lookup
from ..builder import NetBuilder, Var, methods
from ..builder.methods import (
    BUILDER_METHODS,
    BuilderMethods,
    builder_method,
    layer,
    running_method,
    takes,
)
from ..builder.operator_methods import method_parameters, method_types

_HEAD = '"""Written by `python build.py stubs`; do not edit."""'
_ROOT = sys.modules[methods.__name__.partition(".")[0]]

_OPERATORS = f"{_ROOT.__name__}.operators."
_INDENT = "    "
_WIDTH = 100


def stubs() -> dict[Path, str]:
    """The path of each stub, and its text."""
    texts = {package: face_text(package) for package in (_ROOT, cntk, nnet3, speech)}
    texts[methods] = methods_text()
    return {Path(str(of.__file__)).with_suffix(".pyi"): text for of, text in texts.items()}


def face_text(package: ModuleType) -> str:
    """The stub of a package that looks names up on first use: every public name as an import."""
    homes = {name: package._HOMES.get(name, ".") for name in package.__all__}
    places = sorted((home, name) for name, home in homes.items())
    lines = [_import(home, name) for home, name in places]
    version = ["", "__version__: str"] if hasattr(package, "__version__") else []
    return "\n".join([_HEAD, "", *lines, *version, ""])


def _import(home: str, name: str) -> str:
    """A name that a stub passes on, as the formatter lays it out."""
    line = f"from {home} import {name} as {name}"
    return line if len(line) <= _WIDTH else f"from {home} import (\n    {name} as {name},\n)"


def methods_text() -> str:
    """The stub of builder/methods.py: layers, and operators of this package, as typed methods."""
    lines = [
        '_F = TypeVar("_F", bound=Callable[..., Any])',
        "",
        "BUILDER_METHODS: dict[str, Callable[..., Any]]",
        "",
        *_function(builder_method, ""),
        "",
        *_function(running_method, ""),
        "",
        *_function(layer, ""),
        "",
        *_function(takes, ""),
        "",
        "class BuilderMethods:",
        *_function(BuilderMethods.layer_for, _INDENT),
    ]
    names = {**vars(methods), "Var": Var}
    for function in BUILDER_METHODS.values():
        lines += _function(function, _INDENT)
        names.update(function.__globals__)
    for operator in method_types():
        entry = lookup(operator)
        taken = operator in vars(NetBuilder) or operator in BUILDER_METHODS
        if not taken and _is_of_this_package(entry):
            lines += _operator(entry)
    used = _annotations("\n".join(lines))
    imports = _imports({name: names[name] for name in used & names.keys() - {"_F"}})
    return "\n".join([_HEAD, "", *imports, "", *lines, ""])


def _annotations(text: str) -> set[str]:
    """The names in the annotations of a stub, and in what it assigns."""
    expressions: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.arg | ast.AnnAssign):
            expressions.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            expressions.append(node.returns)
        elif isinstance(node, ast.Assign):
            expressions.append(node.value)
    trees = [ast.walk(expression) for expression in expressions if expression is not None]
    return {node.id for tree in trees for node in tree if isinstance(node, ast.Name)}


def _is_of_this_package(entry: OperatorDef) -> bool:
    """Whether an operator is one of `opscope.operators`, not of a dialect or a plug-in."""
    return entry.module.startswith(_OPERATORS)


def _function(function: Callable[..., Any], indent: str) -> list[str]:
    """A function; in a class, where its first argument is the builder, as a method."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if indent:
        parameters[0] = inspect.Parameter("self", parameters[0].kind)
    return _definition(
        function.__name__, parameters, signature.return_annotation, function.__doc__ or "", indent
    )


def _operator(entry: OperatorDef) -> list[str]:
    outputs = [slot for slot in entry.outputs if not slot.intermediate]
    single = len(outputs) == 1 and not outputs[0].duplicable
    result = "Var" if single else "tuple[Var, ...]"
    return _definition(entry.type, method_parameters(entry), result, entry.doc, _INDENT)


def _definition(
    name: str, parameters: Iterable[inspect.Parameter], result: str, doc: str, indent: str
) -> list[str]:
    """The lines of a definition, with the first paragraph of its documentation."""
    inner = indent + _INDENT
    first = " ".join(inspect.cleandoc(doc).split("\n\n")[0].split())
    text = textwrap.wrap(f'"""{first}', 100 - len(inner) - 3, break_on_hyphens=False)
    return [
        f"{indent}def {name}(",
        *(f"{inner}{parameter}," for parameter in _parameters(parameters)),
        f"{indent}) -> {result}:",
        *(inner + line for line in text[:-1]),
        f'{inner}{text[-1]}"""',
    ]


def _parameters(parameters: Iterable[inspect.Parameter]) -> list[str]:
    texts = []
    star = False
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            texts.append("*")
            star = True
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
        text = stars.get(parameter.kind, "") + parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {parameter.annotation}"
        if parameter.default is not parameter.empty:
            text += f" = {_default(parameter.default)}"
        star = star or parameter.kind is parameter.VAR_POSITIONAL
        texts.append(text)
    return texts


def _default(value: Any) -> str:
    """A default as it is written, or `...` where it is more than a constant."""
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "..."
    return repr(value) if value is None or isinstance(value, (bool, int, float)) else "..."


def _imports(names: Mapping[str, Any]) -> list[str]:
    """The import statements that define names, in the order that ruff wants."""
    package = methods.__name__.split(".")[:-1]
    standard = {}
    others = []
    inside = {}
    for name, value in sorted(names.items()):
        if isinstance(value, ModuleType):
            others.append(f"import {value.__name__} as {name}")
            continue
        home = value.__module__.split(".")
        if home[0] != package[0]:
            standard.setdefault(value.__module__, []).append(name)
        elif value.__module__ != methods.__name__:
            shared = next(
                (n for n, (a, b) in enumerate(zip(home, package, strict=False)) if a != b),
                len(package),
            )
            dots = "." * (len(package) - shared + 1)
            inside.setdefault((-len(dots), dots + ".".join(home[shared:])), []).append(name)
    lines = [f"from {home} import {', '.join(standard[home])}" for home in sorted(standard)]
    lines += ["", *sorted(others), ""] if others else [""]
    return lines + [
        f"from {home} import {', '.join(inside[(n, home)])}" for n, home in sorted(inside)
    ]


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text, encoding="utf-8")
