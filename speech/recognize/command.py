"""The command `opscope transcribe`."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from ...framework.base.errors import OpscopeError
from .batch import Batch, targets_of
from .formats import ENDINGS, FORMATS, spoken_json
from .speaker_model import SpkModel
from .transcript import MODES, AnyModel, opened_model, recognized
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
    mode: str
    speakers: str | None = None

    def __call__(self, path: str, model: AnyModel) -> str:
        transcript = transcribed(
            path,
            model,
            channel=self.channel,
            **self.asked(),
        )
        return FORMATS[self.form](transcript)

    def asked(self) -> dict[str, Any]:
        """What utterances are asked for, however their samples come."""
        return {
            "grammar": self.grammar,
            "alternatives": self.alternatives,
            "phones": self.phones,
            "mode": self.mode,
            "speakers": _speaker_model(self.speakers),
        }


@functools.cache
def _speaker_model(folder: str | None) -> SpkModel | None:
    """The model in a folder, read once by each process."""
    return None if folder is None else SpkModel(folder)


@click.command()
@click.argument("model", type=click.Path())
@click.argument("files", nargs=-1, type=click.Path())
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="txt")
@click.option(
    "-o", "--output", metavar="FOLDER", help="Write a file for each recording, in this folder."
)
@click.option("--jobs", type=click.IntRange(1), default=1, help="Processes that share the files.")
@click.option("--stream", is_flag=True, help="Print each utterance when it is over; txt or json.")
@click.option(
    "--rate",
    type=click.IntRange(1),
    help="Of raw 16-bit samples from standard input (FILE is -) or the microphone, in Hz; 16000 by"
    " default.",
)
@click.option(
    "--microphone",
    is_flag=True,
    help="Print what is said into a microphone, in place of FILES, until Ctrl-C; txt or json.",
)
@click.option("--device", help="The microphone: its number, or a part of its name.")
@click.option("--channel", type=click.IntRange(0), help="Of recordings with several, from 0 on.")
@click.option("--phrase", multiple=True, help="Recognize only such phrases; may be repeated.")
@click.option("--alternatives", type=click.IntRange(0), default=0, help="List so many; json.")
@click.option("--phones", is_flag=True, help="Also list phones; json or textgrid.")
@click.option(
    "--speakers",
    type=click.Path(),
    metavar="FOLDER",
    help="A speaker model of Vosk's: utterances give their speaker as a vector; json.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="steady",
    help="kaldi: a recording is one utterance, as in Kaldi's offline programs; vosk: as in Vosk.",
)
@click.option(
    "--dither", type=float, help="Noise added to all samples, in place of the model's; 0: none."
)
@click.option(
    "--reproducible",
    is_flag=True,
    help="The same words on every machine: the network computes in float64.",
)
def transcribe(
    model: str,
    files: tuple[str, ...],
    form: str,
    output: str | None,
    jobs: int,
    stream: bool,
    rate: int | None,
    microphone: bool,
    device: str | None,
    channel: int | None,
    phrase: tuple[str, ...],
    alternatives: int,
    phones: bool,
    speakers: str | None,
    mode: str,
    dither: float | None,
    reproducible: bool,
) -> None:
    """Print what is said in FILES, recordings in WAV or whatever soundfile reads.

    MODEL is the folder of a Vosk model, or an ONNX file of a CTC model, or a folder with one; see
    docs/speech_words.md. With - for FILE, raw 16-bit samples of one channel are
    read from standard input and each utterance is printed when it is over.
    """
    if bool(files) == microphone:
        raise click.UsageError("give FILES, or --microphone")
    if device is not None and not microphone:
        raise click.UsageError("--device goes with --microphone")
    if alternatives and form != "json":
        raise click.UsageError("--alternatives are listed in --format=json alone")
    if phones and form not in ("json", "textgrid"):
        raise click.UsageError("--phones are listed in --format=json or textgrid alone")
    if speakers is not None and form != "json":
        raise click.UsageError("--speakers are written in --format=json alone")
    streamed = stream or microphone or "-" in files
    if streamed and (form not in ("txt", "json") or output is not None or jobs > 1):
        raise click.UsageError("a stream goes with --format=txt or json, without -o and --jobs")
    if rate is not None and not microphone and "-" not in files:
        raise click.UsageError("--rate is for raw samples (FILE is -) and --microphone")
    if form in _ONE_EACH and len(files) > 1 and output is None:
        raise click.UsageError(f"a file of {form} has one recording: give -o FOLDER for several")
    if streamed and mode == "kaldi":
        raise click.UsageError("--mode=kaldi is for whole recordings: there is no stream of them")
    chosen = -1 if channel is None else channel
    job = _Job(form, phrase or None, alternatives, phones, chosen, mode, speakers)
    _speaker_model(speakers)  # what is wrong with it is reported once
    if streamed:
        opened = opened_model(model, dither=dither, reproducible=reproducible)
        hertz = rate or 16000
        if microphone:
            from ..audio.microphone import Microphone

            _print("microphone", iter(Microphone(hertz, device)), opened, job, hertz)
        else:
            _stream(opened, files, job, hertz)
        return
    targets = targets_of(files, ENDINGS[form], output)
    heading = "{}:".format if form == "txt" and len(files) > 1 and output is None else None
    batch = Batch(model, files, job, files, dither, reproducible, opened_model)
    failed = batch.write(jobs, targets, "transcribing", heading)
    if failed:
        raise OpscopeError(f"{failed} of {len(files)} files could not be transcribed")


def _stream(model: AnyModel, files: tuple[str, ...], job: _Job, rate: int) -> None:
    """Print utterances of recordings, or of standard input, as they come."""
    from ..audio.read import read_audio

    for name in files:
        blocks: Iterator[np.ndarray]
        if name == "-":
            blocks = _raw()
            hertz = float(rate)
        else:
            audio = read_audio(name)
            blocks = iter([audio.channel(job.channel, name)])
            hertz = audio.rate
        _print(name, blocks, model, job, hertz)


def _print(
    name: str, blocks: Iterator[np.ndarray], model: AnyModel, job: _Job, rate: float
) -> None:
    """Print the utterances of a signal, each when it is over."""
    for each in recognized(blocks, model, rate, **job.asked()):
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
