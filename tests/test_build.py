"""build.py and the packaging: what decides an install, the command line, what is in the wheel."""

import ast
import contextlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from doc_blocks import INSTEAD
from house import FLOORS
from opscope.framework.fusion.compiled import compiler

ROOT = Path(__file__).resolve().parents[1]


def load_build():
    """build.py as a module; it is no part of the package, so it is loaded by its path."""
    spec = importlib.util.spec_from_file_location("opscope_build_script", ROOT / "build.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(ROOT))  # as for a script that is run
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT))
    return module


build = load_build()
environments = sys.modules["devtools.environment"]
sizes = sys.modules["devtools.sizes"]


@pytest.fixture
def tree(tmp_path):
    """A tree with the files that decide an install, and an environment's folder."""
    root = tmp_path / "tree"
    (root / "proto").mkdir(parents=True)
    (root / ".venv").mkdir()
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "setup.py").write_text("setup()\n")
    (root / "proto" / "net.proto").write_text('syntax = "proto3";\n')
    (root / "native").mkdir()
    for name in ("declarations.py", "arguments.py"):
        (root / "native" / name).write_text("declared = ()\n")
    return root


@pytest.fixture
def pip_calls(tree, monkeypatch):
    """The pip commands of an Environment whose tree is `tree`; nothing is installed."""
    calls = []
    key = environments.install_key
    monkeypatch.setattr(environments, "ROOT", tree)
    monkeypatch.setattr(environments, "install_key", lambda root=tree: key(root))
    monkeypatch.setattr(environments, "generated_exist", lambda: True)
    monkeypatch.setattr(build.Environment, "create", lambda self: None)
    monkeypatch.setattr(
        build.Environment, "pip", lambda self, *arguments, what: calls.append(arguments)
    )
    return calls


def test_stubs_are_written_by_the_environment(tree, pip_calls, monkeypatch):
    ran = []
    monkeypatch.setattr(build, "VENV", tree / ".venv")
    monkeypatch.setattr(build, "run", lambda command, *_, **__: ran.append(command[1:]))
    build.main(["stubs"])
    assert pip_calls and ran == [["-P", *INSTEAD["build.py stubs"]]]


@pytest.mark.parametrize(
    "name", ["pyproject.toml", "setup.py", "proto/net.proto", "native/arguments.py"]
)
def test_install_key_follows_each_file(tree, name):
    before = environments.install_key(tree)
    assert environments.install_key(tree) == before
    with (tree / name).open("a") as file:
        file.write("# more\n")
    assert environments.install_key(tree) != before


def test_install_key_follows_new_protos_python_and_place(tree, monkeypatch):
    keys = {environments.install_key(tree)}
    shutil.copytree(tree, tree.with_name("elsewhere"))
    keys.add(environments.install_key(tree.with_name("elsewhere")))
    (tree / "proto" / "more.proto").write_text("")
    keys.add(environments.install_key(tree))
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.0")
    keys.add(environments.install_key(tree))
    assert len(keys) == 4


def test_prepare_installs_once(tree, pip_calls):
    environment = build.Environment(tree / ".venv")
    environment.prepare("test")
    environment.prepare("test")
    environment.prepare()
    assert [call[-1] for call in pip_calls] == [f"{tree}[test]"]


def test_prepare_adds_extras_and_keeps_the_former(tree, pip_calls):
    environment = build.Environment(tree / ".venv")
    environment.prepare("test")
    environment.prepare("examples")
    environment.prepare("test")
    assert [call[-1] for call in pip_calls] == [f"{tree}[test]", "opscope[examples,test]"]


def test_prepare_installs_again_after_a_change(tree, pip_calls, monkeypatch):
    environment = build.Environment(tree / ".venv")
    environment.prepare("test")
    (tree / "setup.py").write_text("setup(1)\n")
    environment.prepare("test")
    assert len(pip_calls) == 2
    monkeypatch.setattr(environments, "generated_exist", lambda: False)
    environment.prepare("test")
    assert len(pip_calls) == 3


def test_install_without_extras_builds_the_package_that_the_next_one_adds_them_to(
    tree, pip_calls, monkeypatch
):
    monkeypatch.setattr(build, "VENV", tree / ".venv")
    monkeypatch.setattr(build, "compiling", contextlib.nullcontext)
    monkeypatch.setattr(build.Environment, "install_torch", lambda self: None)
    assert build.main(["install", "--without-extras"]) == build.main(["install"]) == 0
    extras = "opscope[docs,onnx,speed,test,zoo]"
    assert pip_calls == [("install", "-e", str(tree)), ("install", extras)]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"key": 1}', "\x00"])
def test_a_damaged_stamp_counts_for_nothing(tree, pip_calls, content):
    environment = build.Environment(tree / ".venv")
    environment.stamp.write_text(content)
    environment.prepare("test")
    assert len(pip_calls) == 1
    assert environment.installed(environments.install_key(tree)) == {"test"}


def test_a_failed_install_leaves_no_stamp(tree, pip_calls, monkeypatch):
    environment = build.Environment(tree / ".venv")
    environment.prepare("test")

    def fail(self, *arguments, what):
        raise build.StepError(f"{what} failed")

    monkeypatch.setattr(build.Environment, "pip", fail)
    with pytest.raises(build.StepError, match="installing opscope failed"):
        environment.prepare("test", "examples")
    assert not environment.stamp.exists()


def test_python_version_of_an_environment(tree):
    environment = build.Environment(tree / ".venv")
    assert environment.python_version() is None
    (tree / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.9\n")
    assert environment.python_version() == "3.11.9"


@pytest.mark.parametrize("goes_well", [True, False])
def test_the_native_library_is_compiled_while_pip_installs(goes_well, monkeypatch):
    begun = threading.Event()

    def compile_all(compiler, target):
        begun.set()
        if not goes_well:
            raise OSError(f"no {target}")  # setup.py meets it again

    monkeypatch.setattr(build.building, "find_compiler", lambda: "cc")
    monkeypatch.setattr(build.building, "build", compile_all)
    with build.compiling():
        assert begun.wait(60)


def test_torch_that_cannot_be_installed_is_said_and_skipped(tree, monkeypatch, capsys):
    def fail(self, *arguments, what):
        raise build.StepError(f"{what} failed")

    monkeypatch.setattr(build.Environment, "pip", fail)
    monkeypatch.setattr(environments, "TORCH", "0.0.1")
    environment = build.Environment(tree / ".venv")
    environment.python = Path(sys.executable)
    environment.install_torch()
    assert "going on without it" in capsys.readouterr().out


def test_the_oldest_numpy_is_the_bound_of_the_package(tree, pip_calls, capsys):
    build.Environment(tree / ".venv").install_oldest_numpy()
    assert pip_calls == [("install", "numpy==2.0.*")]


def test_run_names_the_step_and_passes_the_code_on(capfd):
    command = [sys.executable, "-c", "print('the reason'); raise SystemExit(7)"]
    with pytest.raises(build.StepError, match="my step failed with exit code 7") as caught:
        build.run(command, "my step", quiet=True)
    assert caught.value.code == 7
    assert "the reason" in capfd.readouterr().err  # held back, then shown


def test_run_without_the_program():
    with pytest.raises(build.StepError, match="my step: "):
        build.run([ROOT / "no" / "such" / "program"], "my step")


def test_main_prints_one_line_for_a_failed_step(monkeypatch, capsys):
    def fail(arguments):
        raise build.StepError("the step failed", 3)

    monkeypatch.setattr(build, "COMMANDS", {fail: False})
    fail.__doc__ = "Fail."
    assert build.main(["fail"]) == 3
    assert capsys.readouterr().err == "build.py: error: the step failed\n"


@pytest.mark.parametrize(
    ("argv", "rest"),
    [
        (["test"], []),
        (["test", "--torch", "-k", "scope and not net", "-x"], ["-k", "scope and not net", "-x"]),
        (["test", "tests/test_build.py", "--", "-h"], ["tests/test_build.py", "-h"]),
        (["test", "--", "--torch"], ["--torch"]),
        (["test", "--oldest-numpy", "-n", "auto"], ["-n", "auto"]),
        (["bench", "--quick"], ["--quick"]),
        (["lint"], []),
    ],
)
def test_arguments_are_passed_on(argv, rest):
    arguments = build.parse(argv)
    assert arguments.command.__name__ == argv[0]
    assert arguments.rest == rest
    if argv[0] == "test":
        assert arguments.torch == (argv[1:2] == ["--torch"])
        assert arguments.oldest_numpy == (argv[1:2] == ["--oldest-numpy"])


@pytest.mark.parametrize("argv", [["lint", "--fix"], ["wheel", "--", "-x"], [], ["no-such"]])
def test_wrong_arguments_are_refused(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        build.parse(argv)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ["-n", "2", "--dist", "worksteal"]),
        (["-k", "a"], ["-n", "2", "--dist", "worksteal", "-k", "a"]),
        (["-n0"], ["-n0"]),
        (["-n", "4"], ["-n", "4"]),
        (["--numprocesses=1"], ["--numprocesses=1"]),
        (["--pdb"], ["--pdb"]),
    ],
)
def test_two_test_processes_unless_told_otherwise(given, expected):
    assert build.pytest_arguments(given) == expected


def test_help_lists_every_command():
    done = subprocess.run(
        [sys.executable, ROOT / "build.py", "--help"], capture_output=True, text=True, check=True
    )
    for command in build.COMMANDS:
        name = command.__name__
        assert re.search(rf"^    {name} ", done.stdout, re.MULTILINE), name


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CONTRIBUTING.md",
        ".ci/run",
        ".pre-commit-config.yaml",
        ".github/workflows/ci.yml",
    ],
)
def test_commands_that_are_named_elsewhere_exist(name):
    named = re.findall(r"python3? build\.py (\w+)", (ROOT / name).read_text(encoding="utf-8"))
    assert named and set(named) <= {command.__name__ for command in build.COMMANDS}


def test_what_ci_leaves_out_is_there():
    """Under another name it would run a second time without a word."""
    left_out = re.findall(r"--deselect (\S+?)::(\w+)", (ROOT / ".ci" / "run").read_text())
    assert left_out
    for path, name in left_out:
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), name


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_pages_outside_of_the_site_lead_somewhere(name):
    links = re.findall(r"\]\(([^)#]+)", (ROOT / name).read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert links and missing == []


RUN_BY_THE_ENVIRONMENT = "deadcode.py"
BEFORE_ANY_INSTALL = [
    ROOT / "build.py",
    *(path for path in (ROOT / "devtools").glob("*.py") if path.name != RUN_BY_THE_ENVIRONMENT),
    *(ROOT / "native").glob("*.py"),
]


@pytest.mark.parametrize(
    "path", BEFORE_ANY_INSTALL, ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_the_build_script_needs_only_the_standard_library(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        else:
            continue
        known = sys.stdlib_module_names | {"devtools", "native"}
        assert all(name.split(".")[0] in known for name in names)


def test_every_package_is_listed():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = settings["tool"]["setuptools"]["packages"]
    found = {"opscope"}
    for name in listed[1:]:
        layer = ROOT / name.split(".")[1]
        for path in layer.rglob("*.py"):
            found.add(".".join(["opscope", *path.parent.relative_to(ROOT).parts]))
    assert sorted(listed) == sorted(found)


def test_generated_code_knows_its_module():
    from opscope import NetDesc

    assert NetDesc.__module__ == "opscope.proto.net_pb2"
    assert NetDesc.DESCRIPTOR.file.name == "opscope/proto/net.proto"


@pytest.fixture(scope="module")
def clean_copy(tmp_path_factory):
    """The tree as a checkout has it: without environments, caches or anything built."""
    copy = tmp_path_factory.mktemp("clean") / "tree"
    made = (".git", ".venv", "build", "dist", "site", "*.egg-info", "*_pb2.py*", "__pycache__")
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*made, ".*_cache", "*.so"))
    # Objects have names that say what they were compiled from: they are what would be made here.
    if (objects := ROOT / "build" / "native").is_dir():
        shutil.copytree(objects, copy / "build" / "native")
    return copy


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wheel_works_away_from_the_tree(clean_copy):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    # A module that an earlier build left behind must not reach the wheel.
    stale = clean_copy / "build" / "lib" / "opscope" / "framework" / "stale.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("")
    if importlib.util.find_spec("pip"):  # it serves the copy's environment, too
        venv.create(clean_copy / ".venv")
    done = subprocess.run(
        [sys.executable, "build.py", "wheel"],
        cwd=clean_copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert f"opscope {load_version()} works from its wheel" in done.stdout

    made = {wheel.stem: wheel for wheel in (clean_copy / "dist").glob("*.whl")}
    assert all(wheel.stat().st_size < 8e6 for wheel in made.values())
    if shutil.which("aarch64-linux-gnu-gcc"):
        (other,) = (stem for stem in made if stem.endswith("manylinux_2_17_aarch64"))
        with zipfile.ZipFile(made.pop(other)) as archive:
            library = archive.read("opscope/native/opscope_native.so")
        assert library[18:20] == b"\xb7\0"  # ELF's number of the machine
    (wheel,) = made.values()
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names} <= {
        "opscope",
        f"opscope-{load_version()}.dist-info",
    }
    files = [
        path
        for pattern in (
            "*.py",
            "*.pyi",
            "*.bs",
            "*.proto",
            "view/page/*",
            "page.html",
            "*.[ch]",
            "*.cu",
        )
        for path in clean_copy.rglob(pattern)
    ]
    sources = {path.relative_to(clean_copy).as_posix() for path in files}
    layers = tuple(f"{floor}/" for floor in FLOORS)
    expected = {f"opscope/{name}" for name in sources if name.startswith(layers)}
    own = ("__init__.py", "__init__.pyi", "__main__.py", "metrics.py")
    expected |= {f"opscope/{name}" for name in own}
    expected |= {"opscope/py.typed", "opscope/proto/net_pb2.pyi"}
    assert "opscope/proto/net_pb2.py" in expected
    if compiler.available():
        expected.add("opscope/native/opscope_native.so")
        assert wheel.stem.split("-")[2:] == ["py3", "none", f"manylinux_2_17_{platform.machine()}"]
    assert {name for name in names if name.startswith("opscope/")} == expected
    assert any(name.endswith("licenses/LICENSE") for name in names)


def load_version() -> str:
    """The version written in the root `__init__.py`, the only place that states it."""
    text = (ROOT / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]


def test_check_runs_every_part_and_names_those_that_failed(monkeypatch, capsys):
    ran = []

    def part(name, fails):
        def step(arguments):
            ran.append(name)
            if fails:
                raise build.StepError(f"{name} failed with exit code 1")

        step.__name__ = name
        monkeypatch.setattr(build, name, step)

    monkeypatch.setattr(build.Environment, "prepare", lambda self, *extras: None)
    for name in ("lint", "types", "deadcode", "prose", "docs", "quick"):
        part(name, name in ("types", "docs"))
    assert build.main(["check"]) == 1
    assert ran == ["lint", "types", "deadcode", "prose", "docs", "quick"]
    text = capsys.readouterr()
    assert "types failed with exit code 1; docs failed with exit code 1" in text.err
    assert "build.py: quick took 0 s" in text.out
    part("types", False)
    part("docs", False)
    assert build.main(["check"]) == 0
    assert "all checks passed" in capsys.readouterr().out


@pytest.mark.parametrize("installed", [True, False])
def test_python_m_build_is_the_package_of_that_name(installed, tmp_path):
    """`python -m build` in the repository finds build.py first, which hands over."""
    if installed:
        (tmp_path / "build").mkdir()
        (tmp_path / "build" / "__init__.py").write_text("")
        (tmp_path / "build" / "__main__.py").write_text("import sys; print('PyPA', sys.argv[1:])")
    done = subprocess.run(
        [sys.executable, "-S", "-m", "build", "--sdist"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    if installed:
        assert (done.returncode, done.stdout) == (0, "PyPA ['--sdist']\n")
    else:
        assert done.returncode == 1
        assert "pip install build" in done.stderr


def test_long_files_and_full_folders_get_advice(tmp_path):
    (tmp_path / "a").mkdir()
    for number in range(sizes.MOST_MODULES + 1):
        (tmp_path / "a" / f"m{number}.py").write_text("x\n" * (sizes.MOST_LINES + (number == 3)))
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "long.py").write_text("x\n" * 9999)
    assert list(sizes.advice(tmp_path)) == [
        f"a/m3.py has {sizes.MOST_LINES + 1} lines: does it hold one idea?",
        f"a holds {sizes.MOST_MODULES + 1} modules: would rooms help?",
    ]
