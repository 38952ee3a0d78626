"""Lists functions, classes, methods and variables of the package that nothing uses.

vulture compares the names that are defined with the names that are used in the package, its
examples, its benchmarks and the scripts of docs/; what only tests use belongs to the tests. This
script adds three kinds of use that vulture does not see:

- names in strings, such as the tables that load modules and methods by name;
- names in the code of README.md and docs/, and what its reference pages show: the public face;
- functions that a decorator registers (`REGISTERING`), and what `ALLOWED` lists with a reason.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = (
    "__init__.py",
    "__main__.py",
    "metrics.py",
    "bridges",
    "cntk",
    "framework",
    "kaldi",
    "native",
    "nnet3",
    "operators",
    "python_api",
    "scale",
    "speech",
    "testing",
)
USERS = ("examples", "benchmarks", "docs", "setup.py")
PAGES = ("README.md", "docs")

# Decorators that put what they decorate into a table.
REGISTERING = [
    "@*.backward",
    "@*.command",
    "@*.expansion",
    "@*.gradient_maker",
    "@*.kernel",
    "@*.shape_rule",
    "@*.epilogue",
    "@_command",
    "@aten",
    "@aten_of",
    "@builder_method",
    "@running_method",
    "@converts",
    "@directive",
    "@emits",
    "@evaluates",
    "@expands",
    "@follows",
    "@gradient",
    "@layer",
    "@layer_type",
    "@lowers",
    "@precomputes",
    "@precomputes_by_row",
    "@preconditions",
    "@program",
    "@pytest.fixture",
    "@register_net",
    "@reorders",
    "@writes",
]

# Names that are used in a way that cannot be seen, by the reason.
ALLOWED: dict[str, list[str]] = {
    "Python asks modules for names by it": ["__getattr__"],
    "inspect and help() read these attributes of a method": ["__qualname__", "__signature__"],
    "nnet3 finds the classes of a components module by their names": ["*Component"],
    "operators of several ranks, registered under names that are put together": ["*_pool[123]d"],
    "kernels that the result of a call registers": [
        "native_batch_norm_grad",
        "reduce_mean_grad_kernel",
    ],
    "arguments of Vosk's methods": ["spk_model"],
    "programs, which the command line finds by their names": ["*_shuffle_egs", "*_subset_egs"],
    "click calls these methods of a group and a command": [
        "format_commands",
        "get_command",
        "list_commands",
        "parse_args",
    ],
    "asyncio calls these methods of a protocol": [
        "connection_lost",
        "connection_made",
        "data_received",
    ],
    "found by the type of an operator (bridges/onnx/cells.py)": ["_read_*"],
    "options of ONNX Runtime": ["intra_op_num_threads", "log_severity_level"],
    "the stand-in of CuPy has the names and arguments of CuPy": [
        "asnumpy",
        "get_default_memory_pool",
        "newaxis",
        "sorter",
        "subok",
        "used_bytes",
    ],
    "an option of Kaldi's recurrent language models, without effect here": ["brk_symbol"],
    "options of Kaldi's features, read from their fields": [
        "max_feature_vectors",
        "vtln_high",
        "vtln_low",
    ],
    "modes of the end of an utterance, as Vosk numbers them": ["DEFAULT", "SHORT", "VERY_LONG"],
    "tests of operators call it": ["torch_names"],
    "the public face: what a user calls on objects of it": [
        "clean_up",
        "drop_kids",
        "format_model",
        "print_expression",
        "recurrent_net",
        "stopped_early",
        "to_padded",
        "unregister",
        "word_frames",
    ],
}

REFERENCE = re.compile(r"^::: opscope\.([\w.]+)", re.MULTILINE)
CODE = re.compile(r"^```\w*\n(.*?)^```|`([^`\n]+)`", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"[A-Za-z_]\w*")


def names_in_strings(source: str) -> Iterator[str]:
    """The identifiers of strings that hold nothing else, `a.b` and `a:b` included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"[\w.:]+", node.value):
                yield from NAME.findall(node.value)


def names_in_code(page: str) -> Iterator[str]:
    """The identifiers of the code blocks and code spans of a Markdown page."""
    for block, span in CODE.findall(page):
        yield from NAME.findall(block or span)


def names_in_reference(page: str) -> Iterator[str]:
    """The names that mkdocstrings puts on a page: those of a module or class, without `_`."""
    for dotted in REFERENCE.findall(page):
        path = ROOT.joinpath(*dotted.split("."))
        stems = (path, path / "__init__", path.parent, path.parent / "__init__")
        module = next(stem.with_suffix(".py") for stem in stems if stem.with_suffix(".py").exists())
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_":
                yield node.name


def files(names: tuple[str, ...], suffix: str) -> Iterator[Path]:
    """The files with this suffix that the names stand for: files and folders of the repository."""
    for name in names:
        path = ROOT / name
        yield from sorted(path.rglob(f"*{suffix}")) if path.is_dir() else [path]


def findings() -> list[str]:
    """One line for each thing that nothing uses."""
    ignored = [pattern for patterns in ALLOWED.values() for pattern in patterns]
    vulture = Vulture(ignore_names=ignored, ignore_decorators=REGISTERING)
    sources = [path for path in files(PACKAGE + USERS, ".py") if "_pb2" not in path.name]
    vulture.scavenge(sources)
    if vulture.exit_code:
        sys.exit(f"vulture could not read a file (exit code {int(vulture.exit_code)})")
    for path in sources:
        vulture.used_names.update(names_in_strings(path.read_text(encoding="utf-8")))
    for page in files(PAGES, ".md"):
        text = page.read_text(encoding="utf-8")
        vulture.used_names.update(names_in_code(text), names_in_reference(text))
    inside = [ROOT / name for name in PACKAGE]
    found = []
    for item in vulture.get_unused_code():
        path = Path(item.filename).resolve()
        if any(path == home or path.is_relative_to(home) for home in inside):
            place = f"{path.relative_to(ROOT).as_posix()}:{item.first_lineno}"
            found.append(f"{place}: {item.typ} {item.name} is not used")
    return found


if __name__ == "__main__":
    lines = findings()
    print("\n".join(lines))
    sys.exit(f"{len(lines)} findings" if lines else 0)
