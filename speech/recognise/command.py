"""The command `opscope transcribe`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import click
import numpy as np

from ...framework.base.atomic import make_folder_of, write_atomically
from ...framework.base.errors import OpscopeError
from .formats import ENDINGS, FORMATS, spoken_json
from .model import Model
from .transcript import recognised
from .transcript import transcribe as transcribed

_BLOCK = 3200  # bytes of a stream that are read at once
_ONE_EACH = ("srt", "vtt", "textgrid")  # formats in which a file has one recording


@dataclass(frozen=True)
class _Job:
    """What a process does with each file."""

    form: str
    grammar: tuple[str, ...] | None
    alternatives: int
    phones: bool
    channel: int

    def __call__(self, path: str, model: Model) -> str:
        found = transcribed(
            path,
            model,
            channel=self.channel,
            grammar=self.grammar,
            alternatives=self.alternatives,
            phones=self.phones,
        )
        return FORMATS[self.form](found)


_loaded: list[Model] = []
"""The model of this process, of the workers."""


def _load(path: str) -> None:
    _loaded.append(Model(path))


def _run(job: _Job, path: str, model: Model | None = None) -> tuple[str, str]:
    """The text for a file, or an empty one and what is wrong."""
    try:
        return job(path, model or _loaded[-1]), ""
    except (OpscopeError, OSError) as error:
        return "", str(error)


@click.command()
@click.argument("model", type=click.Path())
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="txt")
@click.option(
    "-o", "--output", metavar="FOLDER", help="Write a file for each recording, in this folder."
)
@click.option("--jobs", type=click.IntRange(1), default=1, help="Processes that share the files.")
@click.option("--stream", is_flag=True, help="Print each utterance when it is over; txt or json.")
@click.option(
    "--rate",
    type=click.IntRange(1),
    help="Of raw 16-bit samples from standard input (FILE is -), in Hz; 16000 by default.",
)
@click.option("--channel", type=click.IntRange(0), help="Of recordings with several, from 0 on.")
@click.option("--phrase", multiple=True, help="Recognise only such phrases; may be repeated.")
@click.option("--alternatives", type=click.IntRange(0), default=0, help="List so many; json.")
@click.option("--phones", is_flag=True, help="List phones, too; json or textgrid.")
def transcribe(
    model: str,
    files: tuple[str, ...],
    form: str,
    output: str | None,
    jobs: int,
    stream: bool,
    rate: int | None,
    channel: int | None,
    phrase: tuple[str, ...],
    alternatives: int,
    phones: bool,
) -> None:
    """Print what is said in FILES, recordings in WAV or whatever soundfile reads.

    MODEL is the folder of a Vosk model. With - for FILE, raw 16-bit samples of one channel are
    read from standard input and each utterance is printed when it is over.
    """
    if alternatives and form != "json":
        raise click.UsageError("--alternatives are listed in --format=json alone")
    if phones and form not in ("json", "textgrid"):
        raise click.UsageError("--phones are listed in --format=json or textgrid alone")
    streamed = stream or "-" in files
    if streamed and (form not in ("txt", "json") or output is not None or jobs > 1):
        raise click.UsageError("a stream goes with --format=txt or json, without -o and --jobs")
    if rate is not None and "-" not in files:
        raise click.UsageError("--rate is for raw samples from standard input (FILE is -)")
    if form in _ONE_EACH and len(files) > 1 and output is None:
        raise click.UsageError(f"a file of {form} has one recording: give -o FOLDER for several")
    job = _Job(form, phrase or None, alternatives, phones, -1 if channel is None else channel)
    if streamed:
        _stream(model, files, job, rate or 16000)
        return
    targets = _targets(files, form, output)
    failed = 0
    bar = click.progressbar(
        zip(files, targets, _results(model, files, job, jobs), strict=True),
        length=len(files),
        file=sys.stderr,
        label="transcribing" if sys.stderr.isatty() else "",
    )
    with bar as rows:
        for path, target, (text, wrong) in rows:
            if wrong:
                failed += 1
                click.echo(wrong if path in wrong else f"{path}: {wrong}", err=True)
            elif target is None:
                if form == "txt" and len(files) > 1:
                    click.echo(f"{path}:")
                click.echo(text, nl=False)
            else:
                make_folder_of(target)
                write_atomically(target, text.encode())
    if failed:
        raise OpscopeError(f"{failed} of {len(files)} files could not be transcribed")


def _results(model: str, files: tuple[str, ...], job: _Job, jobs: int) -> Iterator[tuple[str, str]]:
    """What `_run` gives for each file, in their order."""
    loaded = Model(model)  # so that what is wrong with it is told here, once
    if jobs == 1 or len(files) == 1:
        yield from (_run(job, path, loaded) for path in files)
        return
    count = min(jobs, len(files))
    try:
        with ProcessPoolExecutor(count, get_context("spawn"), _load, (model,)) as pool:
            yield from pool.map(partial(_run, job), files)
    except BrokenProcessPool:
        raise OpscopeError("a process ended before its files were done: out of memory?") from None


def _targets(files: tuple[str, ...], form: str, folder: str | None) -> list[str | None]:
    """Where the transcript of each file goes; None: to standard output."""
    if folder is None:
        return [None for _ in files]
    found: dict[str, str] = {}
    for path in files:
        stem = os.path.splitext(os.path.basename(path))[0]
        target = os.path.join(folder, stem + ENDINGS[form])
        if target in found:
            raise click.UsageError(f"{found[target]} and {path} would both go to {target}")
        found[target] = path
    return list(found)


def _stream(path: str, files: tuple[str, ...], job: _Job, rate: int) -> None:
    """Print utterances of recordings, or of standard input, as they come."""
    from ..audio.read import read_audio

    model = Model(path)
    for name in files:
        blocks: Iterator[np.ndarray]
        if name == "-":
            blocks, hertz = _raw(), float(rate)
        else:
            audio = read_audio(name)
            blocks, hertz = iter([audio.channel(job.channel, name)]), audio.rate
        found = recognised(
            blocks,
            model,
            hertz,
            grammar=job.grammar,
            alternatives=job.alternatives,
            phones=job.phones,
        )
        for each in found:
            if job.form == "json":
                click.echo(json.dumps({"name": name, **spoken_json(each)}, ensure_ascii=False))
            else:
                click.echo(each.text)
            sys.stdout.flush()


def _raw() -> Iterator[np.ndarray]:
    """Samples from standard input."""
    rest = b""
    source = sys.stdin.buffer
    while data := source.read(_BLOCK):
        data = rest + data
        whole = len(data) // 2 * 2
        rest = data[whole:]
        yield np.frombuffer(data[:whole], "<i2")
    if rest:
        click.echo("standard input ends within a sample: its last byte is left out", err=True)
