"""The pages of the documentation, each in a folder with what it wants to find there.

`python doc_pages.py` runs them all with the opscope that this Python has installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from package_copy import ROOT, copy_package
from reference_folders import KALDI

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TRAINED = "trained/"


def examples(folder: Path) -> None:
    """README and some pages run in a clone of the repository."""
    shutil.copytree(ROOT / "examples", folder / "examples")


def trained(folder: Path) -> None:
    """The model that Kaldi has trained, where the reference results are."""
    if (KALDI / TRAINED).exists():
        shutil.copytree(KALDI / TRAINED, folder / TRAINED)


def recognizer(folder: Path) -> None:
    """A small model that recognizes words of tones, and a recording of three of them."""
    from speech_models import recording, small_files, write_files

    write_files(small_files(folder / "parts"), folder / "model")
    (folder / "talk.wav").write_bytes(recording("ab c ba"))


GIVEN: dict[str, Callable[[Path], None]] = {
    "README.md": examples,
    "docs/nnet3.md": trained,
    "docs/speech_serving.md": recognizer,
}
"""What a page finds in its folder; all else it makes itself."""

IN_A_COPY = {
    "docs/adding_a_component.md": 2,
    "docs/adding_a_node_kind.md": 3,
    "docs/adding_a_program.md": 3,
    "docs/adding_a_reader.md": 3,
    "docs/adding_an_optimization_pass.md": 3,
    "docs/adding_an_optimizer.md": 2,
}
"""Pages that add to the package, and how many files of it they make or edit, tests included."""


def run_page(page: Path, folder: Path, home: Path | None = None) -> None:
    """Run a page in a folder, in a process of its own.

    Args:
        home: where `opscope` is imported from; None: from the installed packages.
    """
    name = page.relative_to(ROOT).as_posix()
    place = folder
    if name in IN_A_COPY:
        place, home = copy_package(folder), folder
    GIVEN.get(name, lambda folder: None)(place)
    left_out = [TRAINED] if TRAINED in page.read_text() and not (place / TRAINED).exists() else []
    variables = os.environ | {"MPLBACKEND": "Agg"}
    variables["PYTHONPATH"] = os.pathsep.join(
        [str(home), os.environ.get("PYTHONPATH", "")] if home else []
    )
    done = subprocess.run(
        [sys.executable, "-P", ROOT / "tests/doc_blocks.py", page, *left_out],
        cwd=place,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def main() -> int:
    """Run every page with the installed package; returns how many fail, which it prints."""
    failed = 0
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                run_page(page, Path(folder))
            except AssertionError as error:
                failed += 1
                print(f"{page.relative_to(ROOT)}: {error}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
