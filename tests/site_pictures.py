"""Screenshots of the built documentation, as a phone and as a desk show it.

`python site_pictures.py SITE FOLDER` writes `FOLDER/NAME-WIDTH.png` for one page of each sort, and
for the page of a net. The page for browsers is shown when Python has started, or says why not.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import opscope
from chromium import Chromium
from site_server import served

PAGES = {
    "front": "",
    "tutorial": "tutorial_images/",
    "reference": "reference/operators/#conv2d",
    "browser": "browser/",
}
SIZES = ((360, 740), (1300, 900))
_STARTED = """!document.getElementById("browser-status")
  || !/^(This page|Loading|$)/.test(document.getElementById("browser-status").textContent)"""
_STILL = {"name": "prefers-reduced-motion", "value": "reduce"}
"""The page jumps to its anchor instead of scrolling there."""
_LONGEST = 60.0
"""Seconds that Python may take to start in the browser."""


def net_page(path: Path) -> None:
    """The page of a transformer."""
    b = opscope.NetBuilder("transformer")
    x = b.embedding(b.input("token", [-1, 16], dtype="int64"), size=[1000, 64])
    h = b.transformer_encoder(x, layers=2, heads=4, causal=True, name="encoder")
    b.softmax(b.fc(h, size=1000, name="scores"), name="next")
    opscope.view(b).save(path)


def main(site: Path, folder: Path) -> int:
    """Write the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, served(site) as (address, _):
        net = Path(scratch, "net.html")
        net_page(net)
        shown = {name: address + page for name, page in PAGES.items()} | {"net": net}
        for width, height in SIZES:
            for name, page in shown.items():
                with Chromium(width, height) as chromium:
                    chromium.send("Emulation.setEmulatedMedia", features=[_STILL])
                    chromium.open(page)
                    end = time.monotonic() + _LONGEST
                    while not chromium.run(_STARTED) and time.monotonic() < end:
                        time.sleep(0.2)
                    chromium.picture(folder / f"{name}-{width}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
