"""The options that the package's code looks up in configs: names, types and defaults, found in its
source, so that no page says what the code does not do."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import MISSING
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from opscope.framework.base.options.option_fields import option_fields

_TYPES = {
    "int": "int",
    "size": "int",
    "float": "float",
    "bool": "bool",
    "string": "string",
    "array": "array",
    "section": "section",
    "has": "",
    "find": "",
    "raw": "",
}
"""Methods of sections that look an option up, and the type of what they give."""
_SECTIONS = ("config", "section", "part", "step", "in_part", "out_part", "label_part", "labels")
_ELEMENTS = {"ints": "ints", "floats": "floats", "strings": "strings", "bools": "bools"}


class Option(NamedTuple):
    """An option that is looked up.

    Attributes:
        name: in configs.
        type: int, float, bool, string, section, or a list of these.
        default: where the config does not give it; "" where it must, or where more than a number
            decides.
        section: what the code calls the section, which tells one inside of another.
    """

    name: str
    type: str
    default: str
    section: str


@cache
def options_of(module: str, *roots: str) -> dict[str, Option]:
    """The options that functions and classes of a module look up, by lower-case name.

    Args:
        module: below `opscope.cntk`.
        roots: its functions and classes; others that these name are among them. None: all.
    """
    found = import_module(f"opscope.cntk.{module}")
    tree = ast.parse(inspect.getsource(found))
    options: dict[str, Option] = {}
    for part in _parts(tree, roots):
        for option in _looked_up(part, found):
            known = options.get(option.name.lower())
            if known is None or (not known.type or not known.default) and option.type:
                options[option.name.lower()] = option
    return options


def _parts(tree: ast.Module, roots: tuple[str, ...]) -> list[ast.stmt]:
    """The definitions that some of a module reach, themselves included."""
    if not roots:
        return tree.body
    kinds = (ast.FunctionDef, ast.ClassDef)
    named = {part.name: part for part in tree.body if isinstance(part, kinds)}
    found: dict[str, ast.stmt] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in found or name not in named:
            continue
        found[name] = named[name]
        waiting += [node.id for node in ast.walk(named[name]) if isinstance(node, ast.Name)]
    return list(found.values())


def _looked_up(part: ast.AST, module: ModuleType) -> Iterator[Option]:
    elements = {
        id(node.func.value): _ELEMENTS[node.func.attr]
        for node in ast.walk(part)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _ELEMENTS
    }
    for node in ast.walk(part):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in _SECTIONS:
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                yield Option(node.slice.value, "", "", ast.unparse(node.value))
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            yield from _handed_on(node, module)
            continue
        if not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "options":
            yield from _fields(node, ast.unparse(node.func.value), part, module)
        if node.func.attr not in _TYPES or not node.args:
            continue
        name = node.args[0]
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value:
            default = _value(node.args[1], module) if len(node.args) > 1 else ""
            kind = elements.get(id(node)) or _TYPES[node.func.attr]
            yield Option(name.value, kind, default, ast.unparse(node.func.value))


def _fields(call: ast.Call, section: str, part: ast.AST, module: ModuleType) -> Iterator[Option]:
    """The options that the fields of a class name: `section.options(cls)`."""
    (kind,) = map(ast.unparse, call.args)
    own = part.name if kind == "cls" and isinstance(part, ast.ClassDef) else kind
    for each in option_fields(getattr(module, own)):
        written = "string" if each.kind is str else each.kind.__name__
        default = "" if each.default is MISSING else _text(each.default)
        yield Option(each.name, written, default, section)


def _handed_on(call: ast.Call, module: ModuleType) -> Iterator[Option]:
    """An option that a function of the module looks up: `_ratio(config, "areaRatio", "0.0")`."""
    if len(call.args) < 2 or ast.unparse(call.args[0]) not in _SECTIONS:
        return
    if ast.unparse(call.func) == "minibatch_size":
        yield Option("minibatchSize", "ints", _value(call.args[1], module), "section")
        return
    name = call.args[1]
    if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.isidentifier():
        default = _value(call.args[2], module) if len(call.args) > 2 else ""
        yield Option(name.value, "", default, ast.unparse(call.args[0]))


def _value(expression: ast.expr, module: ModuleType) -> str:
    """A default as a config would write it; "" where it depends on more than the code."""
    try:
        code = compile(ast.Expression(expression), "default", "eval")
        value = eval(code, dict(vars(module)))
    except Exception:  # it needs what is there in a run only
        return ""
    return _text(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if not isinstance(value, str) or value else "none"
