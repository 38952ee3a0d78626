"""What `build.py docs` refuses in the built site."""

from __future__ import annotations

from pathlib import Path

import pytest

from chromium import browser
from site_pages import findings, wide

HEAD = '<!DOCTYPE html><meta name="viewport" content="width=device-width"><title>t</title>'


def site(folder: Path, **bodies: str) -> Path:
    for name, body in bodies.items():
        (folder / name).mkdir()
        (folder / name / "index.html").write_text(HEAD + body)
    return folder


def test_links_anchors_and_images(tmp_path: Path) -> None:
    made = site(
        tmp_path,
        a='<img src="../a/index.html" alt="a picture"><a href="../b/#two">b</a>',
        b='<h2 id="two">Two</h2><a href="../c/">c</a><a href="../a/#three">a</a>'
        '<img src="x.png" alt=""><a href="https://example.org/none">elsewhere</a>',
    )
    assert list(findings(made)) == [
        "b/index.html: the image x.png has no text",
        "b/index.html: nothing is at ../c/",
        "b/index.html: no heading is at ../a/#three",
        "b/index.html: nothing is at x.png",
    ]


@pytest.mark.skipif(browser() is None, reason="no Chromium")
def test_pages_that_scroll_sideways(tmp_path: Path) -> None:
    made = site(
        tmp_path,
        fits='<div style="overflow-x: auto"><p style="width: 900px">inside</p></div>',
        wide='<p style="width: 900px">outside</p>',
    )
    (found,) = wide(made)
    assert found.startswith("wide/index.html: wider than 360 pixels: 9")
    assert found.endswith("at P: outside")
