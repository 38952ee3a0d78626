"""Functions of the package that call themselves, or each other in a circle, found in the source.

A name stands for the functions of that name in the same file; `self.name` for the methods of that
name of the class, its bases and its subclasses; `other.name` for the same methods where `other` may
be such an object: the class has members or arguments of its own kind, and no annotation says that
this is something else. `super().name` is another function and does not count.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_ROOTS = frozenset("ABC Any Enum Exception Generic NamedTuple OpscopeError Protocol object".split())

Place = tuple[str, str]
"""A function: (file, qualified name)."""


@dataclass
class _Class:
    name: str
    bases: set[str]
    types: dict[str, set[str]]  # member -> names in its annotation, as far as there is one
    mentioned: set[str]  # names in annotations of members and of arguments of methods


@dataclass
class _Function:
    place: Place
    node: ast.FunctionDef | ast.AsyncFunctionDef
    owner: str  # the class that it is a method of, or ""
    around: str  # the innermost class around it, or ""
    imported: set[str]


@dataclass
class _Package:
    classes: dict[str, _Class] = field(default_factory=dict)
    functions: list[_Function] = field(default_factory=list)


def recursive_functions(root: Path, left_out: Iterable[str]) -> list[list[Place]]:
    """Groups of functions that lead back to themselves, sorted.

    Args:
        root: the folder of the package. left_out: folders in it that are not looked at.
    """
    package, skipped = _Package(), set(left_out)
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if skipped.isdisjoint(parts) and not any(part.startswith(".") for part in parts):
            _read(package, "/".join(parts), ast.parse(path.read_text(encoding="utf-8")))
    return sorted(sorted(group) for group in _circles(_calls(package)))


_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


def _read(package: _Package, file: str, tree: ast.Module) -> None:
    """Note the classes and functions of a file."""
    imported: set[str] = set()
    waiting: list[tuple[ast.AST, str, str, str]] = [(tree, "", "", "")]
    while waiting:
        node, name, owner, around = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, _STATEMENTS):
                continue
            inside = name, owner, around
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                imported.update(alias.asname or alias.name.split(".")[0] for alias in child.names)
            elif isinstance(child, ast.ClassDef):
                bases = {part for base in child.bases for part in _names(base)} - _ROOTS
                empty = _Class(child.name, set(), {}, set())
                package.classes.setdefault(child.name, empty).bases |= bases
                inside = f"{name}{child.name}.", child.name, child.name
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                place = file, name + child.name
                package.functions.append(_Function(place, child, owner, around, imported))
                inside = f"{name}{child.name}.", "", around
            if around:
                _read_member(package.classes[around], child, node)
            waiting.append((child, *inside))


def _read_member(found: _Class, node: ast.AST, around: ast.AST) -> None:
    """Note what a statement inside of a class tells of the types of members and arguments."""
    if isinstance(node, ast.AnnAssign):
        name = getattr(node.target, "id", "") or getattr(node.target, "attr", "")
        found.types.setdefault(name, set()).update(_names(node.annotation))
        found.mentioned |= _names(node.annotation)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        for one in _arguments(node):
            found.mentioned |= _names(one.annotation) if one.annotation else set()
    elif isinstance(node, ast.Assign) and isinstance(around, ast.FunctionDef):  # self.x = x
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        targets = node.targets[0]
        targets = targets.elts if isinstance(targets, ast.Tuple) else [targets]
        told = {one.arg: one.annotation for one in _arguments(around) if one.annotation}
        for target, value in zip(targets, values, strict=False):
            if isinstance(target, ast.Attribute) and getattr(value, "id", "") in told:
                types = _names(told[getattr(value, "id", "")])
                found.types.setdefault(target.attr, set()).update(types)


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _names(annotation: ast.AST) -> set[str]:
    """Names in an annotation, which may stand in quotes."""
    found = set()
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(re.findall(r"\w+", node.value))
    return found


def _families(classes: dict[str, _Class]) -> dict[str, str]:
    """Class -> a name that it shares with its bases and subclasses."""
    over = {name: name for name in classes}

    def top(name: str) -> str:
        while over[name] != name:
            name = over[name]
        return name

    for one in classes.values():
        for base in one.bases & classes.keys():
            over[top(one.name)] = top(base)
    return {name: top(name) for name in classes}


def _calls(package: _Package) -> dict[Place, set[Place]]:
    families = _families(package.classes)
    members: defaultdict[str, set[str]] = defaultdict(set)
    for name, family in families.items():
        members[family].add(name)
    methods: defaultdict[tuple[str, str], set[Place]] = defaultdict(set)
    plain: defaultdict[tuple[str, str], set[Place]] = defaultdict(set)
    for one in package.functions:
        if one.owner:
            methods[families[one.owner], one.node.name].add(one.place)
        else:
            plain[one.place[0], one.node.name].add(one.place)
    found: dict[Place, set[Place]] = {}
    holders = {
        family
        for family, kin in members.items()
        if any(package.classes[name].mentioned & kin for name in kin)
    }
    for one in package.functions:
        family = families.get(one.around, "")
        kin, holds_kin = members[family], family in holders
        called = found.setdefault(one.place, set())
        for node in ast.walk(one.node):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                called |= {p for p in plain[one.place[0], node.id] if _is_visible(p, one.place)}
            elif isinstance(node, ast.Attribute) and (family, node.attr) in methods:
                if _may_be_kin(package, one, node.value, kin, holds_kin):
                    called |= methods[family, node.attr]
    return found


def _is_visible(function: Place, user: Place) -> bool:
    """Whether a function, perhaps inside of another one, can be named there."""
    around, _, _ = function[1].rpartition(".")
    return not around or f"{user[1]}.".startswith(f"{around}.")


def _may_be_kin(
    package: _Package, user: _Function, value: ast.expr, kin: set[str], holds_kin: bool
) -> bool:
    if isinstance(value, ast.Call):
        return holds_kin and getattr(value.func, "id", "") != "super"
    if isinstance(value, ast.Name):
        if value.id in ("self", "cls"):
            return True
        told = {one.arg: one.annotation for one in _arguments(user.node)}.get(value.id)
        if told is not None:
            return bool(_names(told) & kin)
        return holds_kin and value.id not in user.imported
    if isinstance(value, ast.Attribute) and getattr(value.value, "id", "") == "self":
        types = set().union(*(package.classes[name].types.get(value.attr, set()) for name in kin))
        return bool(types & kin) if types else holds_kin
    return holds_kin


def _circles(calls: dict[Place, set[Place]]) -> Iterator[list[Place]]:
    """The strongly connected components that have a circle in them (Tarjan, with a stack)."""
    number: dict[Place, int] = {}
    low: dict[Place, int] = {}
    held: list[Place] = []
    holding: set[Place] = set()
    for start in calls:
        waiting = [(start, iter(()))] if start not in number else []
        while waiting:
            place, rest = waiting[-1]
            if place not in number:
                number[place] = low[place] = len(number)
                held.append(place)
                holding.add(place)
                rest = iter(sorted(calls[place]))
                waiting[-1] = place, rest
            below = next(rest, None)
            if below is not None:
                if below not in number:
                    waiting.append((below, iter(())))
                elif below in holding:
                    low[place] = min(low[place], number[below])
                continue
            waiting.pop()
            if waiting:
                parent = waiting[-1][0]
                low[parent] = min(low[parent], low[place])
            if low[place] == number[place]:
                at = held.index(place)
                group = held[at:]
                del held[at:]
                holding.difference_update(group)
                if len(group) > 1 or place in calls[place]:
                    yield group
