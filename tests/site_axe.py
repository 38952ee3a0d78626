"""What axe finds on the pages of the built documentation; `python site_axe.py FOLDER` prints it.

axe-core comes from npm by the version and hash of `axe/package-lock.json`. Every page is opened in
Chromium, in light and in dark colors; of the pages of source, which are all made alike, some.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from chromium import Chromium
from processors.machine import ROOT, from_npm, is_from
from site_pages import pages

HOME = ROOT / "build" / "axe"
_LISTS = Path(__file__).with_name("axe")
_SOURCES = 3
_LONGEST = 600.0
"""Seconds that axe may take for a page: the page of all operators takes half a minute."""
_RULES = {"light": "", "dark": 'runOnly: ["color-contrast"], '}
"""What is checked in which colors: dark pages differ in nothing else."""

_RUN = """axe.run(document, {%sresultTypes: ["violations"]}).then(found => found.violations.flatMap(
  rule => rule.nodes.map(node => `${rule.id}: ${node.target.join(" ")}: ${rule.help}`)))"""


def script() -> str:
    """The text of axe-core, which npm fetches once.

    Raises:
        Lacking: npm is not there, or fails.
    """
    path = HOME / "node_modules" / "axe-core" / "axe.min.js"
    if not (path.exists() and is_from(_LISTS, HOME)):
        from_npm(_LISTS, HOME)
    return path.read_text(encoding="utf-8")


def findings(site: Path) -> Iterator[str]:
    """What axe finds, a line for each element of each page."""
    axe = script()
    sources = pages(site / "source")[_SOURCES:]
    with Chromium() as page:
        for path in sorted(set(pages(site)).difference(sources)):
            for theme, rules in _RULES.items():
                page.theme(theme)
                page.open(path)
                page.run(f"{axe}; 0")
                for found in page.run(_RUN % rules, within=_LONGEST):
                    yield f"{path.relative_to(site).as_posix()} ({theme}): {found}"


def main(site: Path) -> int:
    """Print the findings of a site; returns 1 if there are any."""
    count = 0
    for found in findings(site):
        print(found, flush=True)
        count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
