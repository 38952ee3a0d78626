"""The import direction of the house, read from the source of every module and tried at run time.

proto <- framework <- operators <- {nnet3, cntk} <- python_api
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = {"proto": 0, "framework": 1, "operators": 2, "nnet3": 3, "cntk": 3, "python_api": 4}
MAX_LINES = 600

# The registry registers the operators on the first look-up of one, by the package's name alone: the
# one place that reaches upwards, and it imports nothing from there.
DOORS = {("framework/ir/registry.py", "operators")}


def package_files() -> list[Path]:
    """The hand-written modules of the package."""
    inside = [path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")]
    return [ROOT / "__init__.py", *sorted(p for p in inside if not p.stem.endswith("_pb2"))]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


every_file = pytest.mark.parametrize("path", package_files(), ids=shown)


def resolve(home: tuple[str, ...], level: int, dotted: str) -> tuple[str, ...]:
    """The path below the root of a relative import; `home` is the importing package's."""
    if level > len(home) + 1:
        return ("(outside the package)",)
    names = tuple(name for name in dotted.split(".") if name)
    return home[: len(home) - level + 1] + names


def imports(tree: ast.AST, home: tuple[str, ...]) -> Iterator[tuple[int, str, str]]:
    """The (line, kind, layer) of what a module imports from this package, inside functions too.

    `kind` is "relative", "absolute" or "dynamic" (by `import_module` with a constant name).
    """
    constants = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "opscope":
                    yield node.lineno, "absolute", alias.name
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                if node.module.split(".")[0] == "opscope":
                    yield node.lineno, "absolute", node.module
                continue
            base = resolve(home, node.level, node.module or "")
            for alias in node.names:
                # `from .. import framework` names its layer only here.
                yield node.lineno, "relative", (*base, alias.name)[0]
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else None
            called = node.func.id if isinstance(node.func, ast.Name) else called
            if called not in ("import_module", "__import__"):
                continue
            first = node.args[0]
            name = first.value if isinstance(first, ast.Constant) else None
            name = constants.get(first.id) if isinstance(first, ast.Name) else name
            if not isinstance(name, str):
                continue
            if name.startswith("."):
                dots = len(name) - len(name.lstrip("."))
                yield node.lineno, "dynamic", (*resolve(home, dots, name.lstrip(".")), "")[0]
            elif name.split(".")[0] == "opscope":
                yield node.lineno, "absolute", name


def violations(source: str, relative: str) -> list[str]:
    """What the module at this path below the root imports against the rules."""
    home = tuple(relative.split("/")[:-1])
    layer = home[0] if home else None
    found = []
    for line, kind, target in imports(ast.parse(source), home):
        where = f"{relative}:{line}"
        if kind == "absolute":
            found.append(f"{where}: imports {target} absolutely, inside it is relative")
        elif layer is None or target in (layer, "__version__") or (relative, target) in DOORS:
            continue
        elif target not in LAYERS:
            found.append(f"{where}: imports {target!r} from the root, which is no layer")
        elif LAYERS[target] >= LAYERS[layer]:
            found.append(f"{where}: {layer} imports {target}, against the import direction")
    return found


@every_file
def test_imports_run_one_way(path):
    assert violations(path.read_text(encoding="utf-8"), shown(path)) == []


@every_file
def test_files_stay_short(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{shown(path)} has {lines} lines: split it"


@pytest.mark.parametrize(
    ("relative", "source", "message"),
    [
        ("framework/net.py", "from ..operators import softmax", "framework imports operators"),
        ("framework/net.py", "from .. import operators", "framework imports operators"),
        ("framework/net.py", "def f():\n    from ..operators.a import b", "net.py:2: framework"),
        ("framework/a/b.py", "from ...operators import softmax", "framework imports operators"),
        ("framework/net.py", "import_module('..operators', __package__)", "imports operators"),
        ("framework/net.py", "N = '..cntk'\nimportlib.import_module(N, 'x')", "imports cntk"),
        ("nnet3/a.py", "from ..cntk import b", "nnet3 imports cntk"),
        ("cntk/a.py", "from ..nnet3.b import c", "cntk imports nnet3"),
        ("cntk/a.py", "from ..python_api import io", "cntk imports python_api"),
        ("operators/a.py", "import opscope.framework.net", "absolutely"),
        ("operators/a.py", "from opscope.framework import net", "absolutely"),
        ("operators/a.py", "from ..build import compile_protos", "no layer"),
        ("operators/a.py", "from ... import numpy", "outside the package"),
        ("operators/a.py", "from .. import load", "no layer"),
    ],
)
def test_violations_are_found(relative, source, message):
    (found,) = violations(source, relative)
    assert message in found


@pytest.mark.parametrize(
    ("relative", "source"),
    [
        ("framework/net.py", "from ..proto import net_pb2\nfrom . import scope\nimport numpy"),
        ("operators/__init__.py", "import_module(f'.{name}', __package__)"),
        ("operators/a.py", "from .b import c\nfrom . import b\nimport_module('.b', __package__)"),
        ("python_api/a.py", "from ..nnet3 import b\nfrom ..cntk import b\nfrom .. import proto"),
        ("python_api/a.py", "from .. import __version__"),
        ("__init__.py", "from .python_api import io"),
    ],
)
def test_allowed_imports_pass(relative, source):
    assert violations(source, relative) == []


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh process holds after running `code`."""
    code += "\nimport sys; print('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_import_opscope_loads_nothing_heavy():
    loaded = loaded_by("import opscope")
    heavy = {"numpy", "google.protobuf", "safetensors", "click", "tqdm", "matplotlib", "cupy"}
    assert not loaded & heavy
    assert {name for name in loaded if name.startswith("opscope.")} == set()


def test_framework_loads_no_operator():
    modules = [
        ".".join(("opscope", *path.relative_to(ROOT).with_suffix("").parts))
        for path in sorted((ROOT / "framework").rglob("[!_]*.py"))
    ]
    loaded = loaded_by("import " + ", ".join(modules))
    assert set(modules) <= loaded
    above = tuple(f"opscope.{layer}" for layer, rank in LAYERS.items() if rank > 1)
    assert [name for name in loaded if name.startswith(above)] == []


def test_public_names_load_lazily():
    code = "import opscope; opscope.NetDesc; opscope.framework; print(opscope.__version__)"
    loaded = loaded_by(code)
    assert {"opscope.proto.net_pb2", "opscope.framework"} <= loaded
    assert "opscope.python_api" not in loaded


def test_every_public_name_is_there():
    import opscope

    assert set(opscope.__all__) <= set(dir(opscope))
    for name in opscope.__all__:
        assert getattr(opscope, name) is not None


def test_unknown_public_name():
    import opscope

    with pytest.raises(AttributeError, match="no_such_name"):
        opscope.no_such_name  # noqa: B018
