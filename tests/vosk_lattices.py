"""The lattices that Vosk determinized for three sentences."""

from __future__ import annotations

from functools import cache

from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.lattices.lattice import Arc, CompactLattice, Weight, single
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.speech.fst.words import Words
from speech_data import korean_model, reference, vosk_model

FRAME = 0.03  # seconds
LM_SCALE = 0.9  # of Vosk's results


@cache
def vosk_ids() -> TransitionIds:
    return TransitionIds.of(TransitionModel.read_from(Reader(str(vosk_model("am", "final.mdl")))))


@cache
def vosk_words() -> Words:
    return korean_model().words


def vosk_lattice(name: str) -> CompactLattice:
    """The determinized lattice of a sentence, as Vosk has it."""
    made = CompactLattice(0)

    def weight(graph: str, acoustic: str, ids: str = "") -> Weight:
        numbers = tuple(int(number) for number in ids.split("_") if number)
        return Weight(single(float(graph)), single(float(acoustic)), numbers)

    for line in reference(f"{name}.lattice.txt").read_text().splitlines():
        fields = line.split()
        is_arc = len(fields) >= 5
        while made.states <= max(int(each) for each in fields[: 1 + is_arc]):
            made.add_state()
        if is_arc:
            arc = Arc(int(fields[2]), weight(*fields[3:]), int(fields[1]))
            made.arcs[int(fields[0])].append(arc)
        else:
            made.final[int(fields[0])] = weight(*fields[1:])
    return made
