"""What a recognizer makes of the recordings that were held out, and a page about its training."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence

from ...framework.base.errors import OpscopeError
from ...framework.base.files.atomic import write_atomically
from ...nnet3.programs.base.options import shown as progress
from ..recognize.batch import Batch
from ..recognize.model import Model
from ..recognize.transcript import transcribe
from ..scoring.edits import ErrorCounts
from ..scoring.page import page
from ..scoring.sentences import Sentence, sentences
from .checking import Checked, Recorded
from .data import Recordings, Utterance

_WIDTH, _HEIGHT, _MARGIN = 460, 180, 46


class _Heard:
    """Recognizes utterances."""

    def __init__(self) -> None:
        self._recordings = Recordings()

    def __call__(self, utterance: Utterance, model: Model) -> str:
        found = transcribe(self._recordings.audio(utterance), model, mode="kaldi")
        return " ".join(found.text.split())


def recognize(utterances: Sequence[Recorded], model: str, folder: str, jobs: int) -> None:
    """Write `ref.txt` and `hyp.txt`: what was said and what is recognized, a line an utterance.

    Args:
        jobs: processes.

    Raises:
        OpscopeError: a recording or the model cannot be read. SaveError: a file cannot be written.
    """
    keys = [each.key for each in utterances]
    batch = Batch(model, utterances, _Heard(), keys)
    heard = []
    shown = progress(keys, "decode", "utterances")
    for key, (text, wrong) in zip(shown, batch.results(jobs), strict=True):
        if wrong:
            raise OpscopeError(f"{key}: {wrong}")
        heard.append(f"{key} {text}")
    said = [f"{each.key} {each.text}" for each in utterances]
    for name, rows in (("hyp.txt", heard), ("ref.txt", said)):
        text = "".join(f"{row.strip()}\n" for row in rows)
        write_atomically(os.path.join(folder, name), text.encode())


def scored(folder: str) -> tuple[ErrorCounts, list[Sentence]]:
    """The errors in what `recognize` wrote, and its sentences."""
    said, heard = (f"ark:{os.path.join(folder, name)}" for name in ("ref.txt", "hyp.txt"))
    counts = ErrorCounts()
    return counts, list(sentences(said, heard, "strict", counts))


def by_speaker(checked: Checked, found: Sequence[Sentence]) -> dict[str, ErrorCounts]:
    """The errors of each speaker who was held out; "" for those who are not known."""
    speaker_of = {each.key: each.speaker for each in checked.held_out}
    counts: dict[str, ErrorCounts] = {}
    for each in found:
        counts.setdefault(speaker_of[each.key], ErrorCounts()).add(each.edits)
    return counts


def write_report(
    checked: Checked,
    losses: Sequence[float],
    seconds: Mapping[str, float],
    decoded: str,
    path: str,
    before: str = "",
) -> ErrorCounts:
    """Write a page: the data, the course of the training, the errors in their context.

    Args:
        losses: of each epoch. seconds: of each stage. decoded: folder of `recognize`.
        before: folder of it, of the model that was fine-tuned; "": there was none.

    Raises:
        SaveError: it cannot be written.
    """
    counts, found = scored(decoded)
    wrong = [each for each in found if any(edit.kind != "correct" for edit in each.edits)]
    rows = [(f"{name}", f"{value:.1f} s") for name, value in seconds.items()]
    then = by_speaker(checked, scored(before)[1]) if before else {}
    speakers = [
        (
            name,
            *([f"{then[name].word_error_rate:.2f} % before"] if before else []),
            f"{each.word_error_rate:.2f} %",
            f"{each.words} words",
        )
        for name, each in sorted(by_speaker(checked, found).items())
        if name
    ]
    above = [
        f"<pre>{html.escape(chr(10).join(checked.lines()))}</pre>",
        '<div class="tables">',
        _table("Stage", rows),
        _table("Speaker held out", speakers),
        _curve("loss by epoch (LF-MMI, per frame)", losses),
        "</div>",
    ]
    text = page("A recognizer and its errors", counts, wrong, "\n".join(above))
    write_atomically(path, text.encode("utf-8", "replace"))
    return counts


def _table(heading: str, rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    cells = (
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr><th>{html.escape(heading)}</th></tr>{''.join(cells)}</table>"


def _curve(title: str, values: Sequence[float]) -> str:
    """A line through values, as SVG."""
    low, high = min(values), max(values)
    span = high - low or 1.0
    across = (_WIDTH - 2 * _MARGIN) / max(len(values) - 1, 1)
    points = [
        (_MARGIN + at * across, _HEIGHT - _MARGIN - (value - low) / span * (_HEIGHT - 2 * _MARGIN))
        for at, value in enumerate(values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    bottom = _HEIGHT - _MARGIN
    texts = [
        (4, bottom, f"{low:.3g}"),
        (4, _MARGIN, f"{high:.3g}"),
        (_MARGIN, _HEIGHT - 12, "1"),
        (_WIDTH - _MARGIN, _HEIGHT - 12, f"{len(values)}"),
        (_MARGIN, 20, title),
    ]
    labels = "".join(
        f'<text x="{x}" y="{y}" fill="currentColor" font-size="12">{html.escape(text)}</text>'
        for x, y, text in texts
    )
    return (
        f'<svg role="img" aria-label="{html.escape(title)}" width="{_WIDTH}" height="{_HEIGHT}"'
        f' viewBox="0 0 {_WIDTH} {_HEIGHT}"><polyline fill="none" stroke="currentColor"'
        f' stroke-width="1.5" points="{line}"/>'
        f'<path d="M{_MARGIN} {_MARGIN} V{bottom} H{_WIDTH - _MARGIN}" fill="none"'
        f' stroke="currentColor" stroke-opacity="0.4"/>{labels}</svg>'
    )
