"""Parts of recordings, by a `segments` file. Source: Kaldi's `featbin/extract-segments.cc`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import read_text
from ...framework.base.untrusted.values import shown
from ...kaldi.tables.tables import RandomAccessTable
from ...nnet3.language.nodes import warn
from .wav import WAVE, Audio


@dataclass(frozen=True)
class Segment:
    """A part of a recording.

    Attributes:
        key: of the segment. recording: its key.
        start, end: in seconds; an end of -1 is the recording's.
        channel: from 0 on; None: there must be one.
    """

    key: str
    recording: str
    start: float
    end: float
    channel: int | None = None

    @classmethod
    def parse(cls, line: str) -> Segment:
        """A line: `KEY RECORDING START END [CHANNEL]`.

        Raises:
            FormatError: it is none.
        """
        words = line.split()
        if len(words) not in (4, 5):
            raise FormatError(f"{shown(line)}: want KEY RECORDING START END [CHANNEL]")
        try:
            start, end = float(words[2]), float(words[3])
            channel = int(words[4]) if words[4:] else None
        except ValueError:
            raise FormatError(f"{shown(line)}: times and the channel are numbers") from None
        if not (math.isfinite(start) and math.isfinite(end)) or (channel or 0) < 0:
            raise FormatError(f"{shown(line)}: a time or channel out of range")
        if start < 0 or (end != -1.0 and (end <= 0 or start >= end)):
            raise FormatError(f"{shown(line)}: an empty segment, or a negative time")
        return cls(words[0], words[1], start, end, channel)

    def cut(self, audio: Audio, least: float = 0.1, overshoot: float = 0.5) -> Audio:
        """The part of the recording.

        Args:
            audio: the recording. least: the shortest part, in seconds.
            overshoot: by how much the end may lie after the recording's end.

        Raises:
            FormatError: it does not lie in the recording, or is too short.
        """
        length, end = audio.duration, self.end
        if self.start > length or end > length + overshoot:
            raise FormatError(
                f"segment {self.key}: {self.start:g} to {end:g} s of a recording of {length:g} s"
            )
        if end < 0 or end > length:
            end = length
        if end - self.start < least:
            raise FormatError(f"segment {self.key}: {end - self.start:g} s are too short")
        if self.channel is None and audio.channels != 1:
            raise FormatError(
                f"segment {self.key}: {self.recording} has {audio.channels} channels, and the"
                " segment names none"
            )
        if (self.channel or 0) >= audio.channels:
            raise FormatError(
                f"segment {self.key}: channel {self.channel} of {audio.channels} channels"
            )
        samples = audio.samples[self.channel or 0]
        first = int(self.start * audio.rate + 0.5)
        stop = int(end * audio.rate + 0.5)
        return Audio(samples[None, first : min(stop, len(samples))], audio.rate)


def read_segments(path: str | os.PathLike[str]) -> list[Segment]:
    """The lines of a `segments` file.

    Raises:
        FormatError: it cannot be read, or a line is none; the line is named.
    """
    segments = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            segments.append(Segment.parse(line))
        except FormatError as error:
            raise FormatError(f"{os.fspath(path)}:{number}: {error}") from None
    return segments


def segmented(
    recordings: str,
    segments: str | os.PathLike[str],
    least: float = 0.1,
    overshoot: float = 0.5,
) -> Iterator[tuple[str, Audio]]:
    """Key and samples of each segment; one that does not go is passed over with a warning.

    Args:
        recordings: rspecifier, such as `scp:wav.scp`. segments: a file.
        least, overshoot: see `Segment.cut`.

    Raises:
        FormatError: a line of the file is none, or a recording cannot be read.
    """
    table = RandomAccessTable(recordings, WAVE)
    for segment in read_segments(segments):
        if segment.recording not in table:
            warn(f"Could not find recording {segment.recording}, skipping segment {segment.key}")
            continue
        try:
            part = segment.cut(table[segment.recording], least, overshoot)
        except FormatError as error:
            warn(f"{error}: it is passed over")
            continue
        yield segment.key, part
