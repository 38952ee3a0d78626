"""The check of the data: what can be trained on, what is held out, what is wrong with the rest."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.files.atomic import write_atomically
from ...framework.base.untrusted.records import json_file, record, typed
from ...framework.base.untrusted.values import shown
from ...nnet3.programs.base.options import shown as progress
from ..lexicon.dictionary import Dictionary
from .data import Corpus, Recordings, Utterance, speakers_of
from .options import SUBSAMPLING, RecognizerOptions

FRAME_SHIFT = 0.01
_HIGHEST_RATE = 16000
_SHORTEST = 0.1  # seconds
_LISTED = 10


@dataclass(frozen=True)
class Recorded(Utterance):
    """An utterance that can be used.

    Attributes:
        rate: of the recording, in Hz. seconds: its length. held_out: it is not trained on.
    """

    rate: float = 0.0
    seconds: float = 0.0
    held_out: bool = False


@dataclass
class Checked:
    """The outcome of a check.

    Attributes:
        rate: of the features, in Hz. utterances: those that can be used.
        problems: name -> why it cannot be used. notes: lines on what is strange.
    """

    rate: int
    utterances: list[Recorded]
    problems: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def training(self) -> list[Recorded]:
        """Those that are trained on."""
        return [each for each in self.utterances if not each.held_out]

    @property
    def held_out(self) -> list[Recorded]:
        """Those that are not."""
        return [each for each in self.utterances if each.held_out]

    @property
    def hours(self) -> float:
        """Of what is trained on."""
        return sum(each.seconds for each in self.training) / 3600

    def write(self, path: str) -> None:
        """Write it as JSON."""
        write_atomically(path, (json.dumps(asdict(self), indent=1) + "\n").encode())

    @classmethod
    def read(cls, path: str) -> Checked:
        """Read what `write` wrote. Raises FormatError: it is something else."""
        values = typed(json_file(path), dict[str, Any], path)
        listed = typed(values.pop("utterances", None), list[dict[str, Any]], f"{path}: utterances")
        found = record({**values, "utterances": []}, cls, path)
        found.utterances = [record(each, Recorded, path) for each in listed]
        return found

    def lines(self) -> list[str]:
        """What there is, in a few lines."""
        rows = []
        for what, some in (("training", self.training), ("held out", self.held_out)):
            hours = sum(each.seconds for each in some) / 3600
            words = [word for each in some for word in each.words]
            rows.append(
                f"{what}: {len(some)} utterances, {hours:.2f} hours, {len(speakers_of(some))}"
                f" speakers, {len(words)} words, {len(set(words))} different ones"
            )
        lengths = [each.seconds for each in self.utterances]
        rows.append(
            f"lengths: {min(lengths):.2f} to {max(lengths):.2f} s, {np.median(lengths):.2f} s in"
            " the median"
        )
        rates = Counter(each.rate for each in self.utterances)
        listed = (f"{count} at {rate:g} Hz" for rate, count in rates.most_common())
        rows.append(f"recordings: {', '.join(listed)}; features at {self.rate} Hz")
        characters = Counter("".join(word for each in self.utterances for word in each.words))
        rows.append(f"characters: {''.join(sorted(characters))}")
        return rows + self.notes


def check(
    corpus: Corpus,
    dictionary: Dictionary | None,
    options: RecognizerOptions,
    upsamples: bool = False,
    rate: int = 0,
) -> Checked:
    """Read all recordings once, and sort out what cannot be used.

    Args:
        dictionary: of the words; None: they are looked up later.
        upsamples: recordings may have lower rates than the features.
        rate: of the features of a model that is tuned, in Hz; 0: there is none.

    Raises:
        FormatError: a recording cannot be used and `skip_bad` is not set, or nothing is left.
    """
    found = _read(corpus)
    rates = Counter(min(int(each.rate), _HIGHEST_RATE) for each in found.utterances)
    found.rate = rate or options.rate or max(rates, key=lambda rate: (rates[rate], rate), default=0)
    shortest = None if dictionary is None else _shortest(dictionary)
    kept = []
    for each in found.utterances:
        why = _problem(each, 0 if upsamples else found.rate, shortest, options)
        if why:
            found.problems[each.key] = why
        else:
            kept.append(each)
    found.utterances = kept
    if found.problems and (not options.skip_bad or not kept):
        raise FormatError(_message(found.problems))
    hold_out(found, options)
    if dictionary is not None:
        _note_phones(found, dictionary)
    if found.problems:
        found.notes.append(f"left out: {len(found.problems)} that cannot be used")
    return found


def _message(problems: dict[str, str]) -> str:
    """All problems in one message, the first ones by name."""
    lines = _first_ones([f"{name}: {why}" for name, why in problems.items()])
    count = f"{len(problems)} recording{'s' * (len(problems) > 1)}"
    return "\n  ".join(
        [f"{count} cannot be used; --skip-bad leaves such ones out, and counts them", *lines]
    )


def _read(corpus: Corpus) -> Checked:
    """The lengths and rates of all recordings."""
    found = Checked(0, [], dict(corpus.problems))
    recordings = Recordings()
    first: dict[bytes, Utterance] = {}
    twice: list[tuple[bool, str]] = []
    for each in progress(corpus.utterances, "check", "recordings"):
        try:
            audio = recordings.audio(each)
        except OpscopeError as error:
            found.problems[each.key] = str(error)
            continue
        samples = audio.samples[0]
        if not np.isfinite(samples).all():
            found.problems[each.key] = f"{each.path}: samples that are no numbers"
        elif audio.duration < _SHORTEST:
            found.problems[each.key] = f"{each.path}: {audio.duration:.2f} s are too short"
        elif samples.min() == samples.max():
            found.problems[each.key] = f"{each.path}: there is no signal, all samples are equal"
        elif not each.words:
            found.problems[each.key] = f"{each.path}: its text is empty"
        else:
            mark = hashlib.sha256(samples.tobytes()).digest()
            other = first.setdefault(mark, each)
            if other is not each:
                alike = other.text == each.text
                texts = "" if alike else ", with different texts"
                line = f"the same recording twice: {other.key} and {each.key}{texts}"
                twice.append((alike, line))
            found.utterances.append(
                Recorded(**vars(each), rate=audio.rate, seconds=round(audio.duration, 4))
            )
    found.notes += _first_ones([line for _, line in sorted(twice)])
    return found


def _shortest(dictionary: Dictionary) -> dict[str, int]:
    """Phones of the shortest pronunciation of each word."""
    found: dict[str, int] = {}
    for entry in dictionary.entries:
        found[entry.word] = min(found.get(entry.word, 1 << 30), len(entry.phones))
    return found


def _problem(
    each: Recorded, rate: int, shortest: dict[str, int] | None, options: RecognizerOptions
) -> str:
    """Why an utterance cannot be used; "" if it can."""
    if each.rate < rate:
        return f"{each.path}: {each.rate:g} Hz, but features are computed at {rate} Hz (--rate)"
    if shortest is None:
        return ""
    unknown = sorted(set(each.words) - shortest.keys())
    if unknown:
        return f"words without a pronunciation: {first_names(list(map(shown, unknown)))}"
    phones = sum(shortest[word] for word in each.words)
    frames = each.seconds / FRAME_SHIFT / SUBSAMPLING / (1 + options.speed_step)
    if phones > frames:
        return (
            f"{each.path}: {len(each.words)} words, of {phones} phones or more, do not fit into"
            f" {each.seconds:.2f} s"
        )
    return ""


def hold_out(found: Checked, options: RecognizerOptions) -> None:
    """Choose what is not trained on: whole speakers where there are several.

    Raises:
        FormatError: a speaker is unknown, or nothing is left to train on.
    """
    known = speakers_of(found.utterances)
    rng = np.random.default_rng(options.seed)
    wanted = options.hold_out * len(found.utterances)
    chosen = {name.strip() for name in options.test_speakers.split(",")} - {""}
    unknown = sorted(chosen - set(known))
    if unknown:
        raise FormatError(f"no speaker {shown(unknown[0])}; there are {', '.join(known) or 'none'}")
    if not chosen and len(known) > 1:
        chosen = _drawn_speakers(found, rng.permutation(known).tolist(), wanted)
    if chosen:
        is_held = [each.speaker in chosen for each in found.utterances]
    else:
        is_held = [False] * len(found.utterances)
        for at in rng.permutation(len(is_held))[: max(round(wanted), 1)].tolist():
            is_held[at] = True
    if all(is_held) or not any(is_held):
        raise FormatError(
            f"{sum(is_held)} of {len(is_held)} utterances are held out: some must be, and some not"
        )
    pairs = zip(found.utterances, is_held, strict=True)
    found.utterances = [replace(each, held_out=held) for each, held in pairs]


def _drawn_speakers(found: Checked, speakers: Sequence[str], wanted: float) -> set[str]:
    """Of speakers in a drawn order, those with whom the utterances come nearer to a number; the
    one with the fewest where each of them has too many."""
    count = Counter(each.speaker for each in found.utterances)
    chosen: set[str] = set()
    held = 0
    for speaker in speakers:
        more = held + count[speaker]
        if abs(more - wanted) < abs(held - wanted) and more < len(found.utterances):
            chosen.add(speaker)
            held = more
    return chosen or {min(speakers, key=count.__getitem__)}


def _note_phones(found: Checked, dictionary: Dictionary) -> None:
    """Note phones of the lexicon that no utterance of the training can have."""
    said = {word for each in found.training for word in each.words}
    heard = {phone for entry in dictionary.entries if entry.word in said for phone in entry.phones}
    quiet = {phone for line in dictionary.silence for phone in line}
    phones = sorted({phone for line in dictionary.nonsilence for phone in line} - heard - quiet)
    if phones:
        found.notes.append(f"phones that are never trained: {first_names(phones)}")


def first_names(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return " ".join(_first_ones(names))


def _first_ones(lines: Sequence[str]) -> list[str]:
    """The first lines, and how many more there are."""
    more = len(lines) - _LISTED
    return [*lines[:_LISTED], *([f"and {more} more"] if more > 0 else [])]
