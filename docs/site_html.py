"""What the theme's pages lack: help for readers who use a keyboard or hear the page, a policy."""

from __future__ import annotations

_SKIP = '<a class="skip" href="#content">Skip to the text</a>'
_REPLACED = {
    '<div class="navbar ': '<div role="navigation" aria-label="Pages" class="navbar ',
    'role="complementary"': 'role="navigation" aria-label="This page"',
    'role="main"': 'role="main" id="content" tabindex="-1"',
    "<th></th>": "<td></td>",
    # The theme's button for the color mode fails without these two style sheets.
    "</head>": '<style id="hljs-light"></style><style id="hljs-dark"></style></head>',
}

CONFINED = "browser.md"
"""The page that runs programs of its readers."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "connect-src 'self'",
        # Python for browsers makes functions from texts; the theme has a script in its pages.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "worker-src 'self' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
"""What the browser may load and ask while the page is open: this server's own files."""


def confined(html: str) -> str:
    """A page whose head states the policy."""
    before, head, after = html.partition("<head>")
    assert head, "the page has no head for the policy"
    meta = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    return f"{before}{head}{meta}{after}"


def improved(html: str) -> str:
    """A page with named landmarks, a link past the navigation, and no empty header cells."""
    for former, new in _REPLACED.items():
        html = html.replace(former, new)
    start = html.index(">", html.index("<body")) + 1
    return html[:start] + _SKIP + html[start:]
