"""What the theme's pages lack for readers who use a keyboard or hear the page."""

from __future__ import annotations

_SKIP = '<a class="skip" href="#content">Skip to the text</a>'
_REPLACED = {
    '<div class="navbar ': '<div role="navigation" aria-label="Pages" class="navbar ',
    'role="complementary"': 'role="navigation" aria-label="This page"',
    'role="main"': 'role="main" id="content" tabindex="-1"',
    "<th></th>": "<td></td>",
}


def improved(html: str) -> str:
    """A page with named landmarks, a link past the navigation, and no empty header cells."""
    for former, new in _REPLACED.items():
        html = html.replace(former, new)
    start = html.index(">", html.index("<body")) + 1
    return html[:start] + _SKIP + html[start:]
