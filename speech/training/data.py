"""Recordings with texts: in folders, in CSV files, in Kaldi's data folders."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ...framework.base.errors import FormatError, nearest
from ...framework.base.untrusted.opener import PathLike, path_text, read_text
from ...framework.base.untrusted.values import shown
from ...kaldi.tables.streams import open_reader
from ..audio.read import read_audio
from ..audio.segments import Segment, read_segments
from ..audio.wav import Audio, read_wav

_ENDINGS = (".wav", ".flac", ".ogg", ".opus", ".mp3")
_COLUMNS = {
    "path": ("path", "audio", "file", "wav", "wav_filename", "audio_path"),
    "text": ("text", "sentence", "transcript", "transcription"),
    "speaker": ("speaker", "client_id", "speaker_id"),
}
"""What the columns of a CSV file may be called."""


@dataclass(frozen=True)
class Utterance:
    """What is said in a recording, or in a part of one.

    Attributes:
        key: tells it from others; without spaces. path: of the recording.
        text: words with one space between them. speaker: "": not known.
        start, end: of the part, in seconds; -1: the end of the recording.
    """

    key: str
    path: str
    text: str
    speaker: str = ""
    start: float = 0.0
    end: float = -1.0

    @property
    def words(self) -> list[str]:
        """The words of the text."""
        return self.text.split()


@dataclass
class Corpus:
    """Utterances, and what is wrong with others.

    Attributes:
        problems: name of a file or utterance -> why it cannot be used.
    """

    utterances: list[Utterance] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    def digest(self) -> str:
        """A number that changes where texts do, or recordings by their size and time."""
        value = hashlib.sha256()
        for each in self.utterances:
            try:
                status = os.stat(each.path)
                mark = status.st_size, status.st_mtime_ns
            except OSError:  # a command, or a file that is missing: reading tells
                mark = 0, 0
            value.update(repr((each, mark)).encode("utf-8", "surrogatepass"))
        value.update(repr(self.problems).encode("utf-8", "surrogatepass"))
        return value.hexdigest()


def read_corpus(source: PathLike) -> Corpus:
    """The utterances of a folder or a file.

    Args:
        source: Kaldi's data folder with `wav.scp`, `text` and perhaps `utt2spk` and `segments`;
            or a folder whose recordings have texts beside them, NAME.txt for NAME.wav, and in
            which the folder of a recording is its speaker; or a CSV or TSV file with a header.

    Raises:
        FormatError: it is none of these, a line of it is damaged, or there is no utterance.
    """
    name = path_text(source)
    if os.path.exists(os.path.join(name, "wav.scp")):
        corpus = _of_kaldi(name)
    elif os.path.isdir(name):
        corpus = _of_folder(name)
    else:
        corpus = _of_table(name)
    if not corpus.utterances:
        first = next(iter(corpus.problems.items()), None)
        why = f": {first[0]}: {first[1]}" if first else ""
        raise FormatError(f"{name}: there is no recording with a text{why}")
    corpus.utterances.sort(key=lambda each: each.key)
    for one, other in zip(corpus.utterances, corpus.utterances[1:], strict=False):
        if one.key == other.key:
            raise FormatError(f"{name}: {one.path} and {other.path} are both called {one.key}")
    return corpus


class Recordings:
    """Reads the samples of utterances; the recording that was read last is kept."""

    def __init__(self) -> None:
        self._last: tuple[str, Audio | None] = ("", None)

    def audio(self, utterance: Utterance) -> Audio:
        """The samples of an utterance, one channel.

        Raises:
            FormatError: its recording cannot be read, or lacks that part.
        """
        path, audio = self._last
        if audio is None or path != utterance.path:
            path = utterance.path
            if path.endswith("|"):
                audio = read_wav(open_reader(path, listed=True))
            else:
                audio = read_audio(path, pipes=False)
            self._last = path, audio
        channel = Audio(audio.channel(name=path)[None], audio.rate)
        if not utterance.start and utterance.end < 0:
            return channel
        return Segment(utterance.key, path, utterance.start, utterance.end).cut(channel)


def _of_folder(folder: str) -> Corpus:
    """Recordings below a folder with a text beside each."""
    corpus = Corpus()
    for place, folders, names in os.walk(folder):
        folders.sort()
        stems = {name[: -len(".txt")] for name in names if name.endswith(".txt")}
        inside = os.path.relpath(place, folder)
        parts = [] if inside == os.curdir else inside.split(os.sep)
        for name in sorted(names):
            stem, ending = os.path.splitext(name)
            if ending.lower() not in _ENDINGS:
                continue
            path = os.path.join(place, name)
            if stem not in stems:
                corpus.problems[path] = f"there is no {stem}.txt beside it"
                continue
            try:
                text = plain_text(os.path.join(place, f"{stem}.txt"))
            except FormatError as error:
                corpus.problems[path] = str(error)
                continue
            key = _key("-".join([*parts, stem]))
            speaker = _key("-".join(parts))
            corpus.utterances.append(Utterance(key, path, " ".join(text.split()), speaker))
    return corpus


def _of_table(path: str) -> Corpus:
    """The rows of a CSV file, or of one with tabs; paths are relative to its folder."""
    text = plain_text(path)
    delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    try:
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise FormatError(f"{path}: line {reader.line_num}: {error}") from None
    if not rows:
        raise FormatError(f"{path}: the file is empty")
    header = [name.strip().lower() for name in rows[0][1]]
    found = {
        column: next((header.index(name) for name in names if name in header), -1)
        for column, names in _COLUMNS.items()
    }
    for column in ("path", "text"):
        if found[column] < 0:
            wanted = ", ".join(_COLUMNS[column])
            raise FormatError(f"{path}: its first line has no column {wanted}")
    corpus = Corpus()
    folder = os.path.dirname(path)
    for number, row in rows[1:]:
        if len(row) < len(header):
            raise FormatError(f"{path}: line {number}: {len(row)} columns of {len(header)}")
        name = row[found["path"]].strip()
        speaker = _key(row[found["speaker"]]) if found["speaker"] >= 0 else ""
        key = _key(os.path.splitext(name)[0].replace(os.sep, "-").lstrip("-"))
        text = " ".join(row[found["text"]].split())
        corpus.utterances.append(Utterance(key, os.path.join(folder, name), text, speaker))
    return corpus


def _of_kaldi(folder: str) -> Corpus:
    """Kaldi's data folder."""
    recordings = dict(_pairs(os.path.join(folder, "wav.scp")))
    texts = dict(_pairs(os.path.join(folder, "text")))
    speakers = {}
    if os.path.exists(os.path.join(folder, "utt2spk")):
        speakers = dict(_pairs(os.path.join(folder, "utt2spk")))
    if os.path.exists(os.path.join(folder, "segments")):
        parts = read_segments(os.path.join(folder, "segments"))
    else:
        parts = [Segment(key, key, 0.0, -1.0) for key in recordings]
    corpus = Corpus()
    for part in parts:
        if part.recording not in recordings:
            hint = nearest(part.recording, recordings)
            corpus.problems[part.key] = f"wav.scp has no recording {shown(part.recording)}{hint}"
        elif part.key not in texts:
            corpus.problems[part.key] = "it is not in the file text"
        else:
            corpus.utterances.append(
                Utterance(
                    part.key,
                    recordings[part.recording],
                    " ".join(texts[part.key].split()),
                    speakers.get(part.key, ""),
                    part.start,
                    part.end,
                )
            )
    known = {part.key for part in parts}
    corpus.problems |= {key: "there is no recording of it" for key in texts if key not in known}
    return corpus


def plain_text(path: str) -> str:
    """The text of a file, without the mark that spreadsheets and editors begin it with.

    Raises:
        FormatError: it holds a zero byte or is not UTF-8, or cannot be read.
    """
    text = read_text(path).removeprefix("\ufeff")
    before, zero, _ = text.partition("\0")
    if zero:
        line = before.count("\n") + 1
        raise FormatError(f"{path}: line {line}: a zero byte, which no text has")
    return text


def _pairs(path: str) -> Iterator[tuple[str, str]]:
    """The first word of each line of a file, and the rest."""
    seen: set[str] = set()
    for number, line in enumerate(plain_text(path).split("\n"), 1):
        fields = line.split(None, 1)
        if not fields:
            continue
        if fields[0] in seen:
            raise FormatError(f"{path}: line {number}: {shown(fields[0])} comes again")
        seen.add(fields[0])
        yield fields[0], fields[1].strip() if fields[1:] else ""


def _key(text: str) -> str:
    return "_".join(text.split())


def speakers_of(utterances: Iterable[Utterance]) -> list[str]:
    """The speakers that are known, sorted."""
    return sorted({each.speaker for each in utterances} - {""})
