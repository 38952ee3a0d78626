"""The result of an alignment: words and phones with their times, and how well they fit."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..recognize.transcript import Spoken, Transcript
from ..recognize.utterance import Phone, Word


@dataclass(frozen=True)
class AlignedPhone:
    """A phone, its begin and end in seconds from the beginning of the recording.

    Attributes:
        confidence: how probable the network finds the phone beside the most probable phone of each
            frame, the geometric mean; 1: nowhere another one is more probable.
    """

    text: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True)
class AlignedWord:
    """A word of the text, its begin and end in seconds from the beginning of the recording.

    Attributes:
        confidence: of its phones, weighted by their lengths.
        phones: of the pronunciation that fits best.
    """

    text: str
    start: float
    end: float
    confidence: float
    phones: list[AlignedPhone] = field(default_factory=list)


@dataclass(frozen=True)
class Alignment:
    """When the words of a text were spoken.

    Attributes:
        name: of the recording. duration: in seconds.
        lines: the words of each line of the text.
        phones: all of them in order, with silences between words.
        confidence: of all phones except silences outside of words.
        log_likelihood: what the network gives the path, for each frame, with transitions and
            pronunciations; comparable between texts of one recording.
        beam: with which the alignment was found.
    """

    name: str
    duration: float
    lines: list[list[AlignedWord]]
    phones: list[AlignedPhone]
    confidence: float
    log_likelihood: float
    beam: float

    @property
    def words(self) -> list[AlignedWord]:
        """All words."""
        return [word for line in self.lines for word in line]

    @property
    def text(self) -> str:
        """All words, a line for each line of the text."""
        return "\n".join(" ".join(word.text for word in line) for line in self.lines)

    def transcript(self) -> Transcript:
        """The same as recognizers give it: an utterance for each line."""
        utterances: list[Spoken] = []
        rest = list(self.phones)
        for number, line in enumerate(self.lines, 1):
            end = line[-1].end if number < len(self.lines) else float("inf")
            count = next((at for at, phone in enumerate(rest) if phone.start >= end), len(rest))
            words = [Word(word.text, word.start, word.end, word.confidence) for word in line]
            phones = [Phone(phone.text, phone.start, phone.end) for phone in rest[:count]]
            utterances.append(Spoken(line[0].start, line[-1].end, words, phones))
            rest = rest[count:]
        return Transcript(self.name, self.duration, utterances)
