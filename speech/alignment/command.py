"""The command `opscope align`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache

import click

from ...framework.base.errors import FormatError, OpscopeError, doubled
from ...framework.base.untrusted.opener import no_such_file, read_bounded
from ...kaldi.tables.specifiers import is_specifier
from ...kaldi.tables.tables import RandomAccessTable, read_table
from ..audio.read import read_audio
from ..audio.wav import WAVE, Audio
from ..recognize.batch import Batch, targets_of
from ..recognize.formats import ENDINGS
from ..recognize.model import Model
from .align import align as aligned
from .formats import FORMATS
from .path import AlignOptions
from .text import SpokenText

_ONE_EACH = ("srt", "vtt", "textgrid")  # formats in which a file has one recording
_TEXTS = (".txt", ".lab")  # endings of texts in a folder


@dataclass(frozen=True)
class _Item:
    """A recording and its text.

    Attributes:
        name: a path, or the key in a table. text: the path of a file, or what is said.
        place: of what is said, for errors; None: `text` is a path.
    """

    name: str
    text: str
    place: str | None = None

    def spoken(self) -> SpokenText:
        if self.place is None:
            return SpokenText.read(self.text)
        return SpokenText.of(self.text, self.place)


@dataclass(frozen=True)
class _Job:
    """What a process does with each recording; `table`: rspecifier of recordings."""

    form: str
    channel: int
    options: AlignOptions
    unknown: str | None
    table: str | None = None

    def __call__(self, item: _Item, model: Model) -> str:
        audio = read_audio(item.name) if self.table is None else _audio(self.table, item.name)
        alignment = aligned(
            audio,
            item.spoken(),
            model,
            channel=self.channel,
            options=self.options,
            unknown=self.unknown,
            name=item.name,
        )
        return FORMATS[self.form](alignment)


@cache
def _table(rspecifier: str) -> RandomAccessTable:
    return RandomAccessTable(rspecifier, WAVE)


def _audio(rspecifier: str, key: str) -> Audio:
    audio = _table(rspecifier).get(key)
    if audio is None:
        raise FormatError(f"{rspecifier}: there is no recording {key}")
    return audio


@click.command()
@click.argument("model", type=click.Path())
@click.argument("audio", nargs=-1, required=True)
@click.argument("text")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="txt")
@click.option(
    "-o", "--output", metavar="FOLDER", help="Write a file for each recording, in this folder."
)
@click.option("--jobs", type=click.IntRange(1), default=1, help="Processes that share the files.")
@click.option("--beam", default=10.0, show_default=True, help="Of the search.")
@click.option(
    "--retry-beam", default=40.0, show_default=True, help="Of a second try; 0: there is none."
)
@click.option("--unknown", metavar="WORD", help="Word of the model for words that it lacks.")
@click.option("--channel", type=click.IntRange(0), help="Of recordings with several, from 0 on.")
@click.option(
    "--dither", type=float, help="Noise added to all samples, in place of the model's; 0: none."
)
def align(
    model: str,
    audio: tuple[str, ...],
    text: str,
    form: str,
    output: str | None,
    jobs: int,
    beam: float,
    retry_beam: float,
    unknown: str | None,
    channel: int | None,
    dither: float | None,
) -> None:
    """Print when each word and phone of TEXT was spoken in AUDIO.

    MODEL is the folder of a Vosk model. AUDIO is a recording and TEXT a file with what is said in
    it (-: standard input). With several recordings, TEXT is a folder that has STEM.txt for each, or
    a file with a line for each: its name without the ending, then the words, as Kaldi's `text` has
    them. AUDIO may be a table of Kaldi's, as scp:wav.scp; then TEXT is such a file, or a table.
    """
    job = _Job(
        form,
        -1 if channel is None else channel,
        AlignOptions(beam, retry_beam),
        unknown,
        audio[0] if is_specifier(audio[0]) else None,
    )
    items = _items(audio, text)
    if form in _ONE_EACH and len(items) > 1 and output is None:
        raise click.UsageError(f"a file of {form} has one recording: give -o FOLDER for several")
    names = [item.name for item in items]
    targets = _targets(names, form, output, keys=job.table is not None)
    heading = "{}:".format if form == "txt" and len(items) > 1 and output is None else None
    failed = Batch(model, items, job, names, dither).write(jobs, targets, "aligning", heading)
    if failed:
        raise OpscopeError(f"{failed} of {len(items)} recordings could not be aligned")


def _targets(names: list[str], form: str, folder: str | None, keys: bool) -> list[str | None]:
    if keys:  # not paths: nothing is cut off
        names = [f"{name.replace('/', '_').replace(os.sep, '_')}.key" for name in names]
    return targets_of(names, ENDINGS[form], folder)


def _items(audio: tuple[str, ...], text: str) -> list[_Item]:
    """The recordings with their texts.

    Raises:
        FormatError: a recording has no text, or the other way round.
    """
    if any(map(is_specifier, audio)):
        if len(audio) > 1:
            raise click.UsageError("a table of recordings stands alone")
        return _of_table(text)
    if len(audio) == 1 and text == "-":
        said = read_bounded(sys.stdin.buffer, "standard input")
        try:
            return [_Item(audio[0], said.decode(), "standard input")]
        except UnicodeDecodeError as error:
            raise FormatError(f"standard input: no text in UTF-8 (byte {error.start})") from None
    if os.path.isdir(text):
        return [_Item(path, _in_folder(text, path)) for path in audio]
    if not is_specifier(text) and not os.path.exists(text):
        advice = "; TEXT is a file with what is said, or - for standard input"
        raise no_such_file(text, advice)
    if len(audio) == 1 and not is_specifier(text):
        return [_Item(audio[0], text)]
    known = {item.name: item for item in _of_table(text)}
    stems = [_stem(path) for path in audio]
    twice = sorted(doubled(stems))
    if twice:
        raise FormatError(f"several recordings are called {twice[0]}: {text} has one text for each")
    missing = [path for path, stem in zip(audio, stems, strict=True) if stem not in known]
    if missing:
        raise FormatError(f"{text}: there is no line {_stem(missing[0])} for {missing[0]}")
    return [
        _Item(path, known[stem].text, known[stem].place)
        for path, stem in zip(audio, stems, strict=True)
    ]


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _in_folder(folder: str, path: str) -> str:
    """The text of a recording in a folder."""
    paths = [os.path.join(folder, _stem(path) + ending) for ending in _TEXTS]
    present = [each for each in paths if os.path.isfile(each)]
    if not present:
        raise FormatError(f"{path}: it has no text (looked for {' and '.join(paths)})")
    return present[0]


def _of_table(text: str) -> list[_Item]:
    """The entries of a file or table with a key and words in each line."""
    rspecifier = text if is_specifier(text) else f"ark:{text}"
    items: dict[str, _Item] = {}
    for key, words in read_table(rspecifier, "token_vector"):
        if key in items:
            raise FormatError(f"{text}: there are two lines {key}")
        items[key] = _Item(key, " ".join(words), f"{text}: {key}")
    if not items:
        raise FormatError(f"{text}: there is no line in it")
    return list(items.values())
