"""What no page of the built documentation may have; `python site_pages.py FOLDER` prints all of it.

Links that lead nowhere and images without text are found in the files. Where a Chromium is
installed, every page is also opened at the width of a phone: it must not scroll sideways.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from chromium import Chromium, browser

PHONE = 360
"""The width in CSS pixels that every page fits."""


class _Page(HTMLParser):
    """The anchors, links and images of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.mute: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.update(value for key, value in attrs if key in ("id", "name") and value)
        target = given.get("href" if tag in ("a", "link") else "src")
        if target:
            self.links.append(target)
        if tag == "img" and not given.get("alt"):
            self.mute.append(str(given.get("src")))


def pages(site: Path) -> list[Path]:
    """The pages of a site except 404.html, whose links are absolute."""
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


def findings(site: Path) -> Iterator[str]:
    """Links without a target and images without text, a line each."""
    read = cache(_Page)
    for path in pages(site):
        page = read(path)
        name = path.relative_to(site).as_posix()
        yield from (f"{name}: the image {source} has no text" for source in page.mute)
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file():
                yield f"{name}: nothing is at {link}"
            elif anchor and target.suffix == ".html" and anchor not in read(target).ids:
                yield f"{name}: no heading is at {link}"


def wide(site: Path, width: int = PHONE) -> Iterator[str]:
    """The pages that scroll sideways at a width, with the element that reaches farthest."""
    with Chromium(width, 740) as page:
        for path in pages(site):
            page.open(path)
            found = page.run(_WIDEST)
            if found:
                yield f"{path.relative_to(site).as_posix()}: wider than {width} pixels: {found}"


_WIDEST = """(() => {
  const seen = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= seen) return "";
  const right = one => one.getBoundingClientRect().right;
  const scrolls = one => one && one !== document.body
    && (getComputedStyle(one).overflowX !== "visible" || scrolls(one.parentElement));
  const far = [...document.querySelectorAll("body *")]
    .filter(one => !scrolls(one.parentElement)).reduce((a, b) => right(b) > right(a) ? b : a);
  return `${Math.round(right(far))} at ${far.tagName}: ${far.textContent.trim().slice(0, 60)}`;
})()"""


def main(site: Path) -> int:
    """Print the findings of a site; returns 1 if there are any."""
    found = list(findings(site))
    if browser():
        found += wide(site)
    else:
        print("site_pages: no Chromium is installed, so widths are not checked")
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
