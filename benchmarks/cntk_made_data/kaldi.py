"""Tables of Kaldi2Reader, with a model and lattices for sequence training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from opscope.cntk.config import ConfigParameters
from opscope.cntk.readers.base.sections import sections_with
from opscope.cntk.readers.htk.options import window_stream
from opscope.kaldi.files.kaldi_io import Writer
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.files.transition_model import HmmState, TransitionModel
from opscope.kaldi.lattices.lattice import Arc, CompactLattice, Weight
from opscope.kaldi.tables.tables import TableWriter

from .base import CLASSES, MadeData, make_folder_of, write
from .htk import FRAMES, STEPS, frames_of, states_of, utterances_of


def kaldi(made: MadeData, section: ConfigParameters) -> None:
    """Tables, files of rspecifiers and lengths of Kaldi2Reader."""
    utterances = utterances_of(made)
    made.minibatch = FRAMES
    for name, part in sections_with(section, "rx"):
        if not part.has("scpFile"):
            continue
        stream, *_ = window_stream(part, name)
        lengths = [len(states_of(number)) for number in range(len(utterances))]
        pairs = zip(utterances, lengths, strict=True)
        made.lists.add(Path(part.string("scpFile")))
        write(part.string("scpFile"), "".join(f"{key} {length}\n" for key, length in pairs))
        with _table(part.string("rx"), "matrix") as table:
            for number, utterance in enumerate(utterances):
                table.write(utterance, frames_of(made, name, stream.dim, number))
    for _, part in sections_with(section, "mlfFile"):
        dim = part.size("labelDim")
        if part.string("labelMappingFile", ""):
            write(part.string("labelMappingFile"), "".join(f"{n}\n" for n in range(dim)))
        with _table(part.string("mlfFile"), "posterior") as table:
            for number, utterance in enumerate(utterances):
                states = [[(int(kind) % dim, 1.0)] for kind in states_of(number)]
                table.write(utterance, Posterior.from_frames(states))
        if section.has("seqTrainCriterion"):
            _sequence_training(made, section, dim)


def _sequence_training(made: MadeData, section: ConfigParameters, pdfs: int) -> None:
    """A model whose phones have a state each, lattices in which other phones compete with the
    spoken ones, and alignments."""
    lattices = section.section("denlats")
    make_folder_of(lattices.string("kaldiModel"))
    writer = Writer()
    _phones_of_one_state(pdfs).write_to(writer)
    writer.save(lattices.string("kaldiModel"))
    path = section.section("alignments").string("rx")
    with (
        _table(path, "int_vector") as alignments,
        _table(lattices.string("rx"), "compact_lattice") as table,
    ):
        for number, utterance in enumerate(utterances_of(made)):
            said = states_of(number)[::STEPS].tolist()
            ids = [one for kind in said for one in _transition_ids(kind)]
            alignments.write(utterance, np.array(ids, np.int32))
            table.write(utterance, _competing(said))


def _table(path: str, kind: str) -> TableWriter:
    """A table of Kaldi beside the file that holds its rspecifier, which is written."""
    write(path, f"ark:{path}.ark\n")
    return TableWriter(f"ark:{path}.ark", kind)


def _phones_of_one_state(count: int) -> TransitionModel:
    """A transition model: phone p, from 1 on, has the pdf p - 1."""
    states = [HmmState(0, 0, [(0, 0.5), (1, 0.5)]), HmmState()]
    phones = list(range(1, count + 1))
    tuples = np.array([(phone, 0, phone - 1) for phone in phones], np.int32)
    log_probs = np.log(np.full(1 + 2 * count, 0.5, np.float32))
    return TransitionModel(phones, [-1] + [0] * count, [states], "<Triples>", tuples, log_probs)


def _transition_ids(kind: int) -> tuple[int, ...]:
    """Of the frames of a class: loops, and the transition that leaves the phone."""
    return (2 * kind + 1,) * (STEPS - 1) + (2 * kind + 2,)


def _competing(said: Sequence[int]) -> CompactLattice:
    """A lattice where each spoken class has two that it is to be told from."""
    lattice = CompactLattice(0)
    for at, kind in enumerate(said):
        lattice.add_state()
        for other in (kind, (kind + 1) % CLASSES, (kind + 2) % CLASSES):
            weight = Weight(1.0, 50.0, _transition_ids(other))
            lattice.arcs[-1].append(Arc(other + 1, weight, at + 1))
    lattice.final[lattice.add_state()] = Weight()
    return lattice
