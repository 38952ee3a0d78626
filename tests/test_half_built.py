"""`import opscope` beside a clone: a tree without its generated modules is refused."""

import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def clone(tmp_path):
    """The files of a fresh clone that an import of the package meets."""
    tree = tmp_path / "opscope"
    (tree / "proto").mkdir(parents=True)
    for path in (ROOT / "__init__.py", *(ROOT / "proto").glob("*.proto")):
        shutil.copy(path, tree / path.relative_to(ROOT))
    (tree / "proto" / "__init__.py").write_text("")
    return tree


def generated(tree, suffix="_pb2.py"):
    """The generated modules that belong to the protos of a tree."""
    protos = (tree / "proto").glob("*.proto")
    return [path.with_name(path.stem + suffix) for path in protos]


def imported(place, path=()):
    """A process in the folder `place` that imports opscope and says from where."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-c", "import opscope; print(opscope.__file__)"],
        cwd=place,
        env={**kept, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
    )


def test_a_fresh_clone_is_refused(clone):
    done = imported(clone.parent)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ImportError")]
    assert f"{clone} is a source tree of opscope that has not been built" in line
    assert "build.py proto" in line and "pip install" in line


def test_a_clone_with_one_generated_module_of_several_is_refused(clone):
    first, *others = sorted(generated(clone))
    assert others
    first.write_text("")
    done = imported(clone.parent)
    assert done.returncode == 1 and f"proto/{others[0].name} is missing" in done.stderr


@pytest.mark.parametrize("suffix", ["_pb2.py", "_pb2.pyc"])
def test_a_built_tree_is_taken(clone, suffix):
    for path in generated(clone, suffix):
        path.write_text("")
    done = imported(clone.parent)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == clone


def test_stubs_alone_are_no_modules(clone):
    for path in generated(clone, "_pb2.pyi"):
        path.write_text("")
    assert imported(clone.parent).returncode == 1


def test_an_archive_is_taken(clone, tmp_path):
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(clone / "__init__.py", "opscope/__init__.py")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = imported(elsewhere, [archive])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(archive))


def test_looking_costs_next_to_nothing():
    import opscope

    start = time.process_time()
    for _ in range(100):
        opscope._require_generated_modules(str(ROOT / "proto"))
    assert (time.process_time() - start) / 100 < 0.001
