"""The files of the page "In your browser": Python for browsers, opscope, and its first programs.

`python docs/browser_page.py SITE` puts them beside the page of a built site. All that the page
loads is there; its policy lets the browser ask no other server.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))  # which run Python for browsers under Node
from house import FLOORS  # noqa: E402
from opscope.native.units import BUILT  # noqa: E402
from processors import wasm  # noqa: E402
from processors.machine import Lacking  # noqa: E402

PAGE = "browser"
"""The page, and the folder of its scripts."""

_PYODIDE = (
    *("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm", "pyodide-lock.json"),
    "python_stdlib.zip",
)
_PACKAGES = "protobuf", "click", "tqdm", "threadpoolctl"
_SUFFIXES = {".py", ".js", ".css", ".html", ".bs", ".c", ".h"}
"""Files of opscope that it needs at run time; the library is checked against its sources."""
REQUEST = "n=0:1 input=-10:19 output=0:9"


def examples() -> dict[str, str]:
    """What the editors of the page hold at first."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.search(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    assert first is not None
    network = (ROOT / "examples" / "nnet3" / "tdnn.xconfig").read_text(encoding="utf-8")
    return {"run": first[1], "compile": network, "request": REQUEST}


def write(site: Path, *, native: bool = True) -> None:
    """Put all that the page loads below a site.

    Args:
        native: whether the native library is built, where emscripten is: it takes a minute.

    Raises:
        Lacking: Node's npm is not there, or a package cannot be had.
    """
    machine = wasm.prepared(native=native)
    folder = site / PAGE / "python"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in _PYODIDE:
        shutil.copy(wasm.HOME / "node_modules" / "pyodide" / name, folder)
    shutil.copy(wasm.SCRIPTS / "backtrace.mjs", folder)
    (folder / "examples.json").write_text(json.dumps(examples()), encoding="utf-8")
    _pack(folder / "packages.zip", _packages())
    _pack(folder / "opscope.zip", _opscope(machine.library))


def _pack(target: Path, files: Iterator[tuple[Path, str]]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, name in files:
            archive.write(path, name)


def _packages() -> Iterator[tuple[Path, str]]:
    """The packages that opscope needs and Pyodide lacks, without their tests."""
    wanted = {"numpy", "google", *(f"{name}.py" for name in _PACKAGES), *_PACKAGES}
    for home in (wasm.HOME / "numpy", wasm.HOME / "packages"):
        for path in sorted(home.rglob("*")):
            name = path.relative_to(home)
            left_out = {"tests", "__pycache__"}.intersection(name.parts)
            if name.parts[0] in wanted and path.is_file() and not left_out:
                yield path, name.as_posix()


def _opscope(library: Path | None) -> Iterator[tuple[Path, str]]:
    """opscope, its native library for WebAssembly where that was built, and the page's tasks."""
    yield Path(__file__).with_name("browser_tasks.py"), "browser_tasks.py"
    paths = [ROOT / name for name in ("__init__.py", "__main__.py", "metrics.py")]
    for floor in FLOORS:
        paths += sorted(path for path in (ROOT / floor).rglob("*") if path.suffix in _SUFFIXES)
    for path in paths:
        yield path, f"opscope/{path.relative_to(ROOT).as_posix()}"
    if library is not None:
        yield library, f"opscope/{BUILT.relative_to(ROOT).as_posix()}"


def main(site: Path) -> int:
    """Complete a built site; returns 1 where that cannot be done."""
    try:
        write(site)
    except Lacking as error:
        print(f"the page for browsers wants {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
