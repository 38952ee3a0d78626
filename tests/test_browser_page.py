"""The page "In your browser", in a real Chromium: Python starts, and every section works.

The page is served with its own files alone, as the site holds them.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from chromium import Chromium, browser
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import write_model
from package_copy import ROOT
from processors.machine import Lacking
from site_server import served

SECONDS = 20.0
"""Of processor time, from opening the page to the first trained net."""

WRONG = "import opscope\n\ndef f(b):\n    b.softmax(3)\n\nf(opscope.NetBuilder())"
WRONG_SAYS = """Traceback (most recent call last):
  File "program", line 6, in <module>
    f(opscope.NetBuilder())
  File "program", line 4, in f
    b.softmax(3)
opscope.framework.base.errors.SlotError: program:4: softmax: slot 'x' wants a variable, not 3"""
"""A program of the reader's with an error, and how the page's answer begins."""

SAVED = """import numpy as np
import opscope

b = opscope.NetBuilder("n")
b.mul(b.input("x", [-1, 2]), b.parameter("w", [2], init=2.0), name="y")
scope = opscope.Scope()
b.initialize(scope)
opscope.save(b, scope, "n")
print(opscope.load("n").predict({"x": np.ones((1, 2))}, fetch=["y"])["y"].tolist())
"""
"""A net that is saved with its numbers and loaded."""

STATUS = "document.getElementById('browser-status').textContent"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of this page alone, without the theme."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        import browser_page
        import site_html
    try:
        browser_page.write(folder, native=False)
    except Lacking as error:
        pytest.skip(f"there is no Pyodide: it wants {error}")
    for name in ("page.js", "worker.js"):
        shutil.copy(ROOT / "docs" / "browser" / name, folder / "browser")
    places = re.findall(r"^<.*$", (ROOT / "docs" / "browser.md").read_text(), re.MULTILINE)
    html = (
        f"<!DOCTYPE html><html><head><title>t</title></head><body>{''.join(places)}</body></html>"
    )
    (folder / "browser" / "index.html").write_text(site_html.confined(html))
    return folder


def until(page: Chromium, script: str, seconds: float = 60.0) -> None:
    """Wait until an expression is true."""
    end = time.monotonic() + seconds
    while not page.run(script):
        assert time.monotonic() < end, (script, page.run("document.body.innerText"))
        time.sleep(0.05)


def pressed(page: Chromium, task: str) -> str:
    """Press the first button of a section; what its output says at the end."""
    place = f"document.querySelector('[data-task={task}]')"
    page.run(f"{place}.querySelector('button').click()")
    until(page, f"!{place}.querySelector('button').disabled")
    return page.run(f"{place}.querySelector('pre').textContent")


def typed(page: Chromium, task: str, text: str) -> None:
    """Write a text into the editor of a section."""
    page.run(f"document.querySelector('[data-task={task}] textarea').value = {json.dumps(text)}")


@pytest.mark.slow
@pytest.mark.skipif(browser() is None, reason="no Chromium")
def test_all_sections(site: Path, tmp_path: Path) -> None:
    with served(site) as (address, asked), served(site) as (elsewhere, leaked), Chromium() as page:
        page.open(f"{address}browser/")
        until(page, f"{STATUS}.startsWith('Ready')")
        printed = pressed(page, "run")
        assert page.seconds() < SECONDS
        assert re.fullmatch(r"0 0\.\d+\n100 .*\n200 .*\n\[0 1 1 0\] 16 operators\n", printed)
        loaded = len(asked)

        typed(page, "run", "def f():\n    return 1 / 0\n\nf()")
        printed = pressed(page, "run")
        assert printed.startswith('Traceback (most recent call last):\n  File "program", line 4')
        assert printed.endswith("ZeroDivisionError: division by zero\n")
        typed(page, "run", WRONG)
        assert pressed(page, "run").startswith(WRONG_SAYS)
        typed(page, "run", SAVED)
        assert pressed(page, "run") == "[[2.0, 2.0]]\n"
        typed(page, "run", "print('half a line', end='')")
        assert pressed(page, "run") == "half a line\n"
        typed(page, "run", "1 +")
        assert pressed(page, "run").startswith('  File "program", line 1\n')

        ask = "from js import XMLHttpRequest\nasked = XMLHttpRequest.new()\n"
        typed(page, "run", f"{ask}asked.open('GET', '{elsewhere}', False)\nasked.send()")
        assert "Error" in pressed(page, "run")

        printed = pressed(page, "compile")
        assert "optimized" in printed
        assert "give m9 as 'output'" in printed
        typed(page, "compile", "input name=input dim=4\nbroken-layer name=x")
        assert "broken-layer" in pressed(page, "compile")

        graph = Graph("small")
        x = graph.input("x", np.float32, ["N", 4])
        graph.output(graph.node("Softmax", [x], "y", axis=-1), np.float32)
        write_model(tmp_path / "small.onnx", graph)
        data = base64.b64encode((tmp_path / "small.onnx").read_bytes()).decode()
        page.run(
            "(async () => { const zone = document.querySelector('.drop');"
            f" const bytes = Uint8Array.from(atob('{data}'), c => c.charCodeAt(0));"
            " const given = new DataTransfer();"
            " given.items.add(new File([bytes], 'small.onnx'));"
            " zone.dispatchEvent(new DragEvent('drop', {dataTransfer: given})); })()"
        )
        until(page, "!document.querySelector('iframe').hidden")
        assert "ONNX" in page.run("document.querySelector('[data-task=look] pre').textContent")
        assert "Softmax" in page.run("document.querySelector('iframe').srcdoc")

        assert leaked == []
        assert len(asked) == loaded, asked[loaded:]
