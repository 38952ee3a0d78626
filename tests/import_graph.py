"""What the modules of the package import from one another, read from their source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple


class Import(NamedTuple):
    """One imported name.

    Attributes:
        line: where it is written.
        kind: "relative", "absolute", or "dynamic": by `import_module` with a constant name.
        path: of a relative or dynamic one, the parts below the root; the last may be a name within
            the module. Of an absolute one, the dotted name.
        when: "loading"; "call", inside a function; "never", under `if TYPE_CHECKING`.
    """

    line: int
    kind: str
    path: tuple[str, ...]
    when: str


OUTSIDE = "(outside the package)"
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def resolve(home: tuple[str, ...], level: int, dotted: str) -> tuple[str, ...]:
    """The path below the root of a relative import; `home` is the importing package's."""
    if level > len(home) + 1:
        return (OUTSIDE,)
    names = tuple(name for name in dotted.split(".") if name)
    return home[: len(home) - level + 1] + names


@cache
def imports(source: str, home: tuple[str, ...]) -> tuple[Import, ...]:
    """All imports of this package in the text of a module, those inside functions too."""
    tree = ast.parse(source)
    if "import_module" not in source and "__import__" not in source:
        return tuple(_imports_below(tree, home, {}, "loading", STATEMENTS))
    constants = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return tuple(_imports_below(tree, home, constants, "loading"))


def _imports_below(
    parent: ast.AST,
    home: tuple[str, ...],
    constants: Mapping[str, object],
    when: str,
    among: type | tuple[type, ...] = ast.AST,
) -> Iterator[Import]:
    """The imports of a part of a module; `among` are the kinds of nodes that may hold any."""
    for node in ast.iter_child_nodes(parent):
        if not isinstance(node, among):
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "opscope":
                    yield Import(node.lineno, "absolute", (alias.name,), when)
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                if (node.module or "").split(".")[0] == "opscope":
                    yield Import(node.lineno, "absolute", (node.module or "",), when)
            else:
                base = resolve(home, node.level, node.module or "")
                for alias in node.names:
                    yield Import(node.lineno, "relative", (*base, alias.name), when)
        elif isinstance(node, ast.Call) and node.args:
            name = _imported_by(node, constants)
            if name.startswith("."):
                dots = len(name) - len(name.lstrip("."))
                path = resolve(home, dots, name.lstrip("."))
                yield Import(node.lineno, "dynamic", path or ("",), when)
            elif name.split(".")[0] == "opscope":
                yield Import(node.lineno, "absolute", (name,), when)
        inside = "call" if when == "loading" and isinstance(node, FUNCTIONS) else when
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            inside = "never"
        yield from _imports_below(node, home, constants, inside, among)


def _imported_by(call: ast.Call, constants: Mapping[str, object]) -> str:
    """The constant name that a call imports; "" where it is no such call."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else None
    called = call.func.id if isinstance(call.func, ast.Name) else called
    if called not in ("import_module", "__import__"):
        return ""
    first = call.args[0]
    name = first.value if isinstance(first, ast.Constant) else None
    name = constants.get(first.id) if isinstance(first, ast.Name) else name
    return name if isinstance(name, str) else ""


def package_of(relative: str) -> tuple[str, ...]:
    """The package of the module at this path below the root."""
    return tuple(relative.split("/")[:-1])


def module_name(relative: str) -> str:
    """`a/b.py` is `a/b`, `a/__init__.py` is `a`."""
    return relative.removesuffix(".py").removesuffix("__init__").rstrip("/")


def graph(
    sources: Mapping[str, str], start_up: tuple[str, ...] = (), types: bool = True
) -> dict[str, set[str]]:
    """Which modules each module imports, by name.

    Args:
        sources: the text of each module by its path below the root.
        start_up: beginnings of the paths of modules whose functions may import anything.
        types: with what is imported for type checkers only.
    """
    names = {module_name(relative) for relative in sources}
    found: dict[str, set[str]] = {}
    for relative, source in sources.items():
        own = found.setdefault(module_name(relative), set())
        free = relative.startswith(start_up) if start_up else False
        for entry in imports(source, package_of(relative)):
            ignored = free and entry.when == "call" or not types and entry.when == "never"
            if entry.kind == "absolute" or ignored:
                continue
            full, package = "/".join(entry.path), "/".join(entry.path[:-1])
            own.update(name for name in [full if full in names else package] if name in names)
        own.discard(module_name(relative))
    return found


def circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The sets of modules that import each other, also through others (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in edges.get(name, ()):
            if other not in order:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], order[other])
        if lowest[name] == order[name]:
            members = stack[stack.index(name) :]
            del stack[-len(members) :]
            if len(members) > 1:
                found.append(sorted(members))

    for name in edges:
        if name not in order:
            visit(name)
    return sorted(found)


def room_of(name: str) -> tuple[str, str]:
    """The floor and the room of a module; the room of a floor's `__init__` is ""."""
    floor, _, rest = name.partition("/")
    return floor, rest.partition("/")[0]


def against_the_order(
    edges: Mapping[str, Iterable[str]], rooms: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """Imports from a room that stands later in its floor's order, or that is missing there.

    The `__init__` of a floor is its face: it may import any room, and no room may import it.
    """
    found = []
    for name, others in edges.items():
        floor, room = room_of(name)
        for other in others:
            floor_of_other, target = room_of(other)
            if floor != floor_of_other or floor not in rooms or room in ("", target):
                continue
            places = {known: place for place, known in enumerate(rooms[floor])}
            if room not in places:
                found.append(f"{name}: {room!r} is not among the rooms of {floor}")
            elif target not in places:
                found.append(
                    f"{name} imports {other}: {target!r} is not among the rooms of {floor}"
                )
            elif places[target] > places[room]:
                found.append(f"{name} imports {other}: {target} stands after {room}")
    return sorted(found)
