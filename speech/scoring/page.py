"""A page that shows the errors of hypotheses in their context, and how often each was made."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence

from .edits import Edit, ErrorCounts, fixed
from .sentences import Sentence

_CONTEXT = 6
"""Correct words that are shown before and after an error; the others become three dots."""
MOST_SENTENCES = 2000
_MOST_ROWS = 60
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>@@title@@</title>
<style>
:root{color-scheme:light dark;--page:#f6f7f9;--paper:#fff;--ink:#1d2430;--soft:#5c6675;
--rule:#d5dae2;--substitution:#d98e04;--deletion:#d64545;--insertion:#1769c9}
@media (prefers-color-scheme:dark){:root{--page:#14181f;--paper:#1f2530;--ink:#e6eaf0;
--soft:#9aa5b5;--rule:#343d4b;--substitution:#f0ae34;--deletion:#f06a6a;--insertion:#6cb0ff}}
body{margin:1.2em;background:var(--page);color:var(--ink);font:14px/1.45 system-ui,sans-serif}
section,table{background:var(--paper);border:1px solid var(--rule);border-radius:6px}
section{margin:.6em 0;padding:.4em .8em}section:target{outline:2px solid var(--insertion)}
h3{font-size:1em;margin:0;overflow-wrap:anywhere}h3 small,.soft{color:var(--soft);font-weight:400}
table{border-spacing:0;padding:.3em .8em}td,th{text-align:left;padding:.1em 1em .1em 0}
td:first-child{text-align:right}.tables{display:flex;flex-wrap:wrap;gap:1em;align-items:flex-start}
p.words{display:flex;flex-wrap:wrap;gap:.1em .45em;margin:.2em 0}
p.words span{display:inline-grid;grid-template-rows:auto auto}
i{font-style:normal}
.substitution{color:var(--substitution)}.deletion{color:var(--deletion)}
.insertion{color:var(--insertion)}.substitution,.deletion,.insertion{font-weight:600}
</style></head><body>
<h1>@@title@@</h1>
@@above@@
<pre>@@counts@@</pre>
<p>In each pair of lines the reference stands above the hypothesis:
<i class="substitution">substitutions</i>, <i class="deletion">deletions</i>,
<i class="insertion">insertions</i>.</p>
<div class="tables">@@tables@@</div>
@@sentences@@
</body></html>
"""
_HEADINGS = {"substitution": "Substitutions", "deletion": "Deletions", "insertion": "Insertions"}


def page(title: str, counts: ErrorCounts, wrong: Sequence[Sentence], above: str = "") -> str:
    """The HTML of a page.

    Args:
        counts: of all sentences. wrong: those that have errors, in any order.
        above: HTML that stands before the counts.
    """
    order = sorted(wrong, key=lambda sentence: -_errors(sentence.edits))
    shown = order[:MOST_SENTENCES]
    parts = {
        "title": _text(title),
        "above": above,
        "counts": _text("\n".join(counts.lines())),
        "tables": "".join(_table(kind, shown, wrong) for kind in _HEADINGS),
        "sentences": "\n".join(_section(at, sentence) for at, sentence in enumerate(shown)),
    }
    if len(order) > len(shown):
        left = len(order) - len(shown)
        parts["sentences"] += f'\n<p class="soft">{left} sentences with fewer errors left out</p>'
    pieces = _PAGE.split("@@")  # every second one is the name of a part
    return "".join(parts[piece] if at % 2 else piece for at, piece in enumerate(pieces))


def _errors(edits: Sequence[Edit[str]]) -> int:
    return sum(edit.kind != "correct" for edit in edits)


def _table(kind: str, shown: Sequence[Sentence], wrong: Sequence[Sentence]) -> str:
    """The errors of a kind, the most frequent first, each with a link to where it was made."""
    made = Counter(edit for each in wrong for edit in each.edits if edit.kind == kind)
    if not made:
        return ""
    places: dict[Edit[str], int] = {}
    for at, sentence in enumerate(shown):
        for edit in sentence.edits:
            places.setdefault(edit, at)
    rows = [f"<tr><th></th><th>{_HEADINGS[kind]}: {made.total()}</th></tr>"]
    for edit, count in sorted(made.items(), key=lambda item: (-item[1], _named(item[0]))):
        if len(rows) > _MOST_ROWS:
            rows.append(
                f'<tr><td></td><td class="soft">and {len(made) - _MOST_ROWS} more</td></tr>'
            )
            break
        name = _text(_named(edit))
        if edit in places:
            name = f'<a href="#s{places[edit]}">{name}</a>'
        rows.append(f"<tr><td>{count}</td><td>{name}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _named(edit: Edit[str]) -> str:
    return " → ".join(word for word in edit if word is not None)


def _section(at: int, sentence: Sentence) -> str:
    counts = ErrorCounts()
    counts.add(sentence.edits)
    rate = fixed(counts.word_error_rate)
    told = f"{counts.errors} of {counts.words} words, {rate} %"
    heading = f"<h3>{_text(sentence.key)} <small>{told}</small></h3>"
    words = "".join(_columns(sentence.edits))
    return f'<section id="s{at}">{heading}<p class="words">{words}</p></section>'


def _columns(edits: Sequence[Edit[str]]) -> list[str]:
    """Columns of two words each, those that are far from all errors as three dots."""
    near = [False] * len(edits)
    for at, edit in enumerate(edits):
        if edit.kind != "correct":
            first, last = max(at - _CONTEXT, 0), at + _CONTEXT + 1
            near[first:last] = [True] * len(near[first:last])
    columns: list[str] = []
    for at, (edit, is_near) in enumerate(zip(edits, near, strict=True)):
        if is_near:
            rows = "".join(f"<i>{_text(word or '·')}</i>" for word in edit)
            columns.append(f'<span class="{edit.kind}">{rows}</span>')
        elif not at or near[at - 1]:
            columns.append("<span><i>…</i><i>…</i></span>")
    return columns


def _text(text: str) -> str:
    printable = "".join(
        c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    return html.escape(printable)
