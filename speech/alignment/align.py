"""From a recording and its text to words and phones with times."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError
from ...kaldi.lattices.lattice import ONE, Arc, CompactLattice, Weight
from ...kaldi.lattices.operations import best_path
from ..lattice.lexicon_align import lexicon_aligned
from ..lattice.times import single_path
from ..lattice.word_align import word_aligned
from ..recognize.model import Model
from ..recognize.transcript import Source, samples_of
from ..search.decoder import BestPath
from .graph import text_graph
from .path import AlignedPath, AlignOptions, NoPathError, aligned_path
from .result import AlignedPhone, AlignedWord, Alignment
from .text import SpokenText, labels_of

_log = logging.getLogger(__name__)
_DOUBTFUL = 0.4  # confidence below which a text seems to be of another recording


def align(
    source: Source,
    text: str | Sequence[str] | SpokenText,
    model: Model | str | os.PathLike[str],
    *,
    rate: float | None = None,
    channel: int = -1,
    options: AlignOptions | None = None,
    unknown: str | None = None,
    name: str = "",
) -> Alignment:
    """When each word and phone of a known text was spoken.

    All pronunciations of words and silences between them are tried. Words must be in the model's
    table, with the same spelling.

    Example:
        for word in align("talk.wav", "good morning", "vosk-model-small-en-us-0.15").words:
            print(word.start, word.end, word.text, [phone.text for phone in word.phones])

    Args:
        source: path of a recording, an `Audio`, or samples of one channel, [count], on the scale
            of 16-bit integers.
        text: what is said in all of it: a string, its lines as the result has them; or words.
        model: a model, or the path of its folder, with `word_boundary.int` or
            `align_lexicon.int` in `graph/phones`.
        rate: of samples in an array, in Hz; by default the model's.
        channel: of a recording with several, from 0 on; -1: the first, with a warning.
        options: of the search.
        unknown: the word of the model, such as "[unk]", that stands for words that it lacks.
        name: of the recording; by default its path.

    Raises:
        FormatError: the recording or the model cannot be read, or the folder does not say where
            words begin.
        OpscopeError: words are not in the model, the text does not fit the recording, samples are
            NaN, or the sampling rate does not go with the model.
    """
    model = model if isinstance(model, Model) else Model(model)
    options = options or AlignOptions()
    spoken = text if isinstance(text, SpokenText) else SpokenText.of(text)
    path, samples, rate = samples_of(source, model, rate, channel, name)
    name = name or path
    labels = labels_of(spoken, model.words, model.graph, unknown)
    if model.boundaries is None and model.lexicon is None:
        raise FormatError(
            f"{model.path}: nothing says which phones words have (looked for"
            f" {' and '.join(model.word_files)})"
        )
    try:
        graph = text_graph(model.graph, labels)
        best = aligned_path(samples, rate, model, graph, options, name)
    except NoPathError as error:
        raise OpscopeError(_reason(error, name, spoken, len(samples) / rate, options)) from None
    return _alignment(name, len(samples) / rate, best, spoken, labels, model)


def _reason(
    error: NoPathError, name: str, text: SpokenText, seconds: float, options: AlignOptions
) -> str:
    """Why there is no alignment, and what helps."""
    words = list(text.words())
    beams = f"beam {options.beam:g}"
    if options.retry_beam:
        beams += f" and with {options.retry_beam:g}"
    reason = f"{name}: did not reach a final state of the text, with {beams}: "
    if not error.frames:
        return reason + f"{seconds:.2f} s are too short for a frame"
    if error.words < len(words):
        word, place = words[error.words]
        reason += (
            f"the recording of {seconds:.2f} s is over before word {error.words + 1} of"
            f" {len(words)}, '{word}' ({place} of {text.name})"
        )
    else:
        reason += f"the recording of {seconds:.2f} s is over within the last word"
    return (
        reason + "; is this the text of the whole recording? A wider retry beam helps where"
        " pronunciation or noise are unusual"
    )


def _alignment(
    name: str,
    duration: float,
    path: AlignedPath,
    text: SpokenText,
    labels: Sequence[int],
    model: Model,
) -> Alignment:
    arcs = _words_of(path.best, model)
    phones: list[AlignedPhone] = []
    words: list[AlignedWord] = []
    within = np.zeros(len(path.scores), bool)
    texts = [word for word, _ in text.words()]
    if [arc.label for arc in arcs if arc.label] != list(labels):
        raise FormatError(f"{model.path}: the lexicon gives other words than the text")
    at = 0
    for label, weight, _ in arcs:
        end = at + len(weight.ids)
        mine = _phones_of(weight.ids, at, path.scores, model)
        if label:
            within[at:end] = True
            begin, until = at * model.frame_shift, end * model.frame_shift
            confidence = _mean(path.scores[at:end])
            words.append(AlignedWord(texts[len(words)], begin, until, confidence, mine))
        phones += mine
        at = end
    lines = []
    done = 0
    for line in text.lines:
        lines.append(words[done : done + len(line)])
        done += len(line)
    confidence = _mean(path.scores[within])
    if confidence < _DOUBTFUL:
        _log.warning(
            "%s: the text fits the recording badly, with a confidence of %.2f: does it belong to"
            " it?",
            name,
            confidence,
        )
    return Alignment(name, duration, lines, phones, confidence, path.log_likelihood, path.beam)


def _mean(logarithms: np.ndarray) -> float:
    """The geometric mean of probabilities; 1 of none."""
    return float(np.exp(logarithms.mean())) if len(logarithms) else 1.0


def _words_of(best: BestPath, model: Model) -> list[Arc]:
    """An arc for each word and each silence, with its transition-ids."""
    lattice = _linear(best)
    if model.boundaries is not None:
        known = model.transitions, model.boundaries
        aligned, _ = word_aligned(lattice, *known, _log.warning)
    else:
        assert model.lexicon is not None
        for label in best.words.tolist():
            if label not in model.lexicon.words:
                where = model.path / model.word_files[1]
                raise FormatError(f"{where}: there is no word {label} ({model.words[label]!r})")
        aligned, _ = lexicon_aligned(lattice, model.transitions, model.lexicon, _log.warning)
        aligned = best_path(aligned)  # of several readings
    return single_path(aligned)


def _linear(best: BestPath) -> CompactLattice:
    """A path as a lattice."""
    lattice = CompactLattice()
    lattice.start = lattice.add_state()
    words = list(zip(best.word_frames.tolist(), best.words.tolist(), strict=True))

    def add(label: int, ids: tuple[int, ...]) -> None:
        target = lattice.add_state()
        lattice.arcs[target - 1].append(Arc(label, Weight(ids=ids), target))

    for frame, number in enumerate(best.transition_ids.tolist()):
        while words and words[0][0] <= frame:
            add(words.pop(0)[1], ())
        add(0, (number,))
    for _, label in words:
        add(label, ())
    lattice.final[-1] = ONE
    return lattice


def _phones_of(
    ids: Sequence[int], first: int, scores: np.ndarray, model: Model
) -> list[AlignedPhone]:
    """The phones of some transition-ids, of which the first one has the frame `first`."""
    begins = [at for at, number in enumerate(ids) if not at or model.starts[number]]
    phones: list[AlignedPhone] = []
    ends = [*begins[1:], len(ids)] if begins else []  # a word may have no frames
    for begin, end in zip(begins, ends, strict=True):
        text = model.phone_name(int(model.phones[ids[begin]]))
        start, stop = first + begin, first + end
        times = start * model.frame_shift, stop * model.frame_shift
        phones.append(AlignedPhone(text, *times, _mean(scores[start:stop])))
    return phones
