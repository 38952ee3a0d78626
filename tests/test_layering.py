"""The tree against the tables of `house.py`: import direction, rooms, circles and names.

proto <- framework <- operators <- kaldi <- {nnet3, cntk} <- speech <- bridges <- scale
<- python_api
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import house
from house import DOORS, FLOORS
from import_graph import against_the_order, circles, graph, imports, package_of

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[1]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def package_files() -> list[Path]:
    """The hand-written modules of the package."""
    inside = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")]
    own = [ROOT / "__init__.py", ROOT / "__main__.py", ROOT / "metrics.py"]
    return [*own, *sorted(p for p in inside if not p.stem.endswith("_pb2"))]


@cache
def folders() -> list[str]:
    """The folders of the package that hold modules, as paths below the root."""
    return sorted({shown(path.parent) for path in package_files()} - {"."})


@cache
def sources() -> dict[str, str]:
    """The text of each module of the package."""
    return {shown(path): path.read_text(encoding="utf-8") for path in package_files()}


@cache
def edges(types: bool = True) -> dict[str, set[str]]:
    """What each module of the package imports, start-up of the command line left out."""
    return graph(sources(), house.START_UP, types)


# -- import direction


def violations(source: str, relative: str) -> list[str]:
    """What the module at this path below the root imports against the rules."""
    home = package_of(relative)
    floor = home[0] if home else None
    found = []
    for line, kind, path, _ in imports(source, home):
        where, target = f"{relative}:{line}", path[0]
        if kind == "absolute":
            found.append(f"{where}: imports {target} absolutely, inside it is relative")
        elif floor is None or target in (floor, "__version__") or (relative, target) in DOORS:
            continue
        elif target not in FLOORS:
            found.append(f"{where}: imports {target!r} from the root, which is no floor")
        elif FLOORS[target] >= FLOORS[floor]:
            found.append(f"{where}: {floor} imports {target}, against the import direction")
    return found


def test_imports_run_one_way():
    found = [violations(source, relative) for relative, source in sources().items()]
    assert sum(found, []) == []


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
        ("operators/a.py", "from ..build import compile_protos", "no floor"),
        ("operators/a.py", "from ... import numpy", "outside the package"),
        ("operators/a.py", "from .. import load", "no floor"),
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


# -- rooms


def rooms_of(floor: str) -> set[str]:
    """The folders of a floor, and the modules beside them."""
    return {
        path.stem if path.suffix == ".py" else path.name
        for path in (ROOT / floor).iterdir()
        if (path.suffix == ".py" or any(path.glob("*.py")))
        and path.name != "__init__.py"
        and not path.stem.endswith("_pb2")
    }


def test_the_table_holds_every_floor():
    assert set(house.ROOMS) == set(FLOORS)


@pytest.mark.parametrize("floor", house.ROOMS)
def test_the_table_holds_every_room(floor):
    assert len(set(house.ROOMS[floor])) == len(house.ROOMS[floor])
    assert set(house.ROOMS[floor]) == rooms_of(floor)


def test_rooms_import_what_stands_before_them():
    assert against_the_order(edges(), house.ROOMS) == []


@pytest.mark.parametrize("types", [False, True])
def test_modules_do_not_import_in_circles(types):
    """Imports inside functions count, and with `types` those for type checkers alone as well."""
    assert circles(edges(types)) == []


@pytest.mark.parametrize("folder", folders())
def test_every_folder_says_what_lives_there(folder):
    source = (ROOT / folder / "__init__.py").read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source)), f"{folder}/__init__.py has no docstring"


def test_the_tables_name_what_is_there():
    assert set(house.DESCRIBED_FLOORS) <= set(FLOORS)
    for start in house.START_UP:
        assert any(name.startswith(start) for name in sources()), f"nothing begins with {start}"


def rows_of_rooms(page: str) -> list[str]:
    """The rooms that a page names at the beginning of a row of a table, as `floor/room`."""
    return re.findall(r"^\| *`(\w+/[\w/]*\w)/?` *\|", page, re.MULTILINE)


@pytest.mark.parametrize("floor", house.DESCRIBED_FLOORS)
def test_the_architecture_names_every_room_once(floor):
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = [room for room in rows_of_rooms(page) if room.partition("/")[0] == floor]
    there = [path.parent for path in (ROOT / floor).glob("*/__init__.py")]
    assert sorted(named) == sorted(shown(path) for path in there)


# -- tests


def misplaced(tests: list[str]) -> list[str]:
    """Those of these paths below `tests/` that stand in a folder that is no room of their floor."""
    found = []
    for path in tests:
        floor, *inside = path.split("/")[:-1] or [""]
        if inside and floor in FLOORS and f"{floor}/{inside[0]}" not in folders():
            found.append(path)
    return found


def test_tests_stand_where_their_module_stands():
    """Tests of one room stand in its folder, those of several at their floor's top."""
    tests = ROOT / "tests"
    assert misplaced([p.relative_to(tests).as_posix() for p in tests.rglob("test_*.py")]) == []


def test_misplaced_tests_are_found():
    wrong = ["nnet3/new/test_a.py", "scale/nnet3/test_b.py"]
    right = ["test_c.py", "zoo/a/test_d.py", "nnet3/test_e.py", "nnet3/graph/deeper/test_f.py"]
    assert misplaced([*wrong, *right]) == wrong


# -- files


def unnamed_functions(source: str) -> list[int]:
    """The lines of functions that are called `_`."""
    if not re.search(r"\bdef\s+_\W", source):
        return []
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return sorted(node.lineno for node in nodes if node.name == "_")


def test_functions_have_names():
    found = [
        f"{path}:{line}" for path, text in sources().items() for line in unnamed_functions(text)
    ]
    assert found == []


# -- the checkers, on made-up sources


def test_imports_are_found_with_their_place():
    source = """\
from .a import b
def f():
    from ..c import d
lambda: import_module('.e', p)
if typing.TYPE_CHECKING:
    from .g import h
"""
    assert [tuple(entry) for entry in imports(source, ("x", "y"))] == [
        (1, "relative", ("x", "y", "a", "b"), "loading"),
        (3, "relative", ("x", "c", "d"), "call"),
        (4, "dynamic", ("x", "y", "e"), "call"),
        (6, "relative", ("x", "y", "g", "h"), "never"),
    ]


def test_the_graph_knows_modules_names_and_packages():
    found = graph(
        {
            "f/__init__.py": "from .a import thing",
            "f/a.py": "from . import b\nfrom .c import thing",
            "f/b.py": "from .. import g\nfrom ..g import name\nfrom ..g.h import other",
            "f/c/__init__.py": "from ..a import thing\nfrom .d import thing",
            "f/c/d.py": "import numpy",
            "g/__init__.py": "",
            "g/h.py": "from . import thing",
        }
    )
    assert found == {
        "f": {"f/a"},
        "f/a": {"f/b", "f/c"},
        "f/b": {"g", "g/h"},
        "f/c": {"f/a", "f/c/d"},
        "f/c/d": set(),
        "g": set(),
        "g/h": {"g"},
    }


@pytest.mark.parametrize(
    "inner",
    [
        "from .a import b",
        "def f():\n    from .a import b",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import b",
        "def f():\n    import_module('.a', __package__)",
        "class C:\n    def f(self):\n        from . import a",
    ],
)
def test_circles_are_found_lazy_ones_and_those_of_types_included(inner):
    found = graph({"f/a.py": "from .b import c", "f/b.py": inner, "f/z.py": "from .a import b"})
    assert circles(found) == [["f/a", "f/b"]]


def test_circles_of_types_can_be_told_apart():
    typed = "if TYPE_CHECKING:\n    from .a import b"
    assert circles(graph({"f/a.py": "from .b import c", "f/b.py": typed}, types=False)) == []


def test_circles_may_be_long_and_several():
    ring = {f"n{i}": {f"n{(i + 1) % 5}"} for i in range(5)}
    assert circles(ring | {"x": {"y", "n0"}, "y": {"x"}, "z": {"x"}}) == [sorted(ring), ["x", "y"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_start_up_imports_make_no_circle():
    pair = {"p/cli_a.py": "def f():\n    from .b import c", "p/b.py": "from .cli_a import f"}
    assert circles(graph(pair)) == [["p/b", "p/cli_a"]]
    assert circles(graph(pair, ("p/cli",))) == []
    at_once = pair | {"p/cli_a.py": "from .b import c"}
    assert circles(graph(at_once, ("p/cli",))) == [["p/b", "p/cli_a"]]


ORDER = {"f": ("base", "ir", "run")}


@pytest.mark.parametrize(
    ("name", "other", "message"),
    [
        ("f/base/a", "f/ir/b", "f/base/a imports f/ir/b: ir stands after base"),
        ("f/ir", "f/run", "f/ir imports f/run: run stands after ir"),
        ("f/ir/a", "f", "f/ir/a imports f: '' is not among the rooms of f"),
        ("f/ir/a", "f/new/b", "f/ir/a imports f/new/b: 'new' is not among the rooms of f"),
        ("f/new/a", "f/ir/b", "f/new/a: 'new' is not among the rooms of f"),
    ],
)
def test_imports_against_the_order_of_rooms_are_found(name, other, message):
    assert against_the_order({name: {other}}, ORDER) == [message]


def test_imports_along_the_order_of_rooms_pass():
    allowed = {
        "f/run/a": {"f/base/x", "f/ir", "f/run/b"},
        "f/ir/a": {"g/high/x"},  # the import direction of floors judges that
        "f": {"f/run/a"},
        "g/low/x": {"g/high/x"},  # a floor without an order
    }
    assert against_the_order(allowed, ORDER) == []


def test_rows_of_rooms_are_found():
    page = "| `f/base/` | errors |\n| `f/ir` | ops |\n| `f/` | no room |\ntext `f/run/`\n"
    assert rows_of_rooms(page) == ["f/base", "f/ir"]


def test_unnamed_functions_are_found():
    assert unnamed_functions("def _():\n    def f():\n        def _(): pass\n_ = 1\n") == [1, 3]


# -- at run time


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
    paths = sorted((ROOT / "framework").rglob("[!_]*.py"))
    modules = [
        ".".join(("opscope", *path.relative_to(ROOT).with_suffix("").parts)) for path in paths
    ]
    loaded = loaded_by("import " + ", ".join(modules))
    assert set(modules) <= loaded
    above = tuple(f"opscope.{floor}" for floor, height in FLOORS.items() if height > 1)
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
