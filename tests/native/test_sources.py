"""C stands in files of C: in strings of Python there are only what generators write."""

import ast
import re
from pathlib import Path

import pytest

from house import FLOORS

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parent.parent.parent
GENERATORS = {
    "framework/fusion/compiled/c_source.py",  # fused loops
    "framework/fusion/cuda/device_kernels.py",  # the type of a kernel's elements
    "native/arguments.py",  # structs that declarations.py declares
    "native/units.py",  # which looks for the headers of a file
}
STAND_IN = "testing/device_raw.py"
"""It gives CUDA's names, and what starts kernels, in C."""
_C = re.compile(
    r"#include\b|\btypedef\b|\bfor \((int|word|size_t) \w"
    r"|\b(static|void|int|word|float|double|int64_t) \*?\w+\([^;{}]*\)\s*\{"
)


def c_texts(path: Path) -> list[str]:
    """Strings of a module that are C, but its docstrings."""
    source = path.read_text(encoding="utf-8")
    if not _C.search(source):
        return []
    nodes = list(ast.walk(ast.parse(source)))
    bodies = [node.body for node in nodes if isinstance(getattr(node, "body", None), list)]
    docs = {id(one.value) for body in bodies for one in body if isinstance(one, ast.Expr)}
    texts = [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    ]
    return [text for text in texts if _C.search(text)]


def test_files_that_comments_name_are_there() -> None:
    named = re.compile(rf"\b(?:{'|'.join(FLOORS)}|native|tests)/[\w/]+\.(?:py|c|h|cu)\b")
    sources = [*(ROOT / "native").rglob("*.[ch]"), *(ROOT / "native").rglob("*.cu")]
    pages = [ROOT / "docs" / "architecture.md", ROOT / "tests" / "tiles.py"]
    found = [
        (path.name, name)
        for path in [*sources, *pages]
        for name in named.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 60
    assert [(path, name) for path, name in found if not (ROOT / name).is_file()] == []


def test_no_module_but_generators_has_c_in_strings() -> None:
    modules = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")]
    assert len(modules) > 1000
    found = {path.relative_to(ROOT).as_posix() for path in modules if c_texts(path)}
    assert found == GENERATORS | {STAND_IN}
