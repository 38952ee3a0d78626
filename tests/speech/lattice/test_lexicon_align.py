"""Alignment by a lexicon, against all ways to cut phones into words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.kaldi.lattices.lattice import ONE, Arc, CompactLattice, Weight, single
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.speech.lattice.align_lexicon import AlignLexicon
from opscope.speech.lattice.best_paths import n_best
from opscope.speech.lattice.lexicon_align import LexiconAlignOptions, lexicon_aligned
from opscope.speech.lattice.times import single_path

# A model of phones 1 to 5: 2 * p - 1 leaves phone p, 2 * p is its loop.
IDS = TransitionIds(
    [0, *(number // 2 + 1 for number in range(10))],
    [0, *(number // 2 + 1 for number in range(10))],
    [-1, *range(10)],
    [False, *(number % 2 == 1 for number in range(10))],
    [False, *(number % 2 == 0 for number in range(10))],
    [-1, *(1 - number % 2 for number in range(10))],
)
ENTRIES = [
    (0, 0, 1),
    (0, 60, 5, 5),  # noise, which is written as a word
    (7, 7, 2),
    (7, 7, 2, 3),
    (7, 17, 2, 2),  # another word for this pronunciation
    (8, 8, 3, 2),
    (8, 8, 2),
    (9, 9, 4, 4, 2),
    (9, 9),  # said without a sound
]
LEXICON = AlignLexicon.of(ENTRIES)
Reading = tuple[tuple[int, int], ...]
"""Words with the number of their phones."""


def readings(words: tuple[int, ...], phones: tuple[int, ...]) -> set[Reading]:
    """All ways to cut phones into words and what stands between them; a word without phones and
    a silence behind it are not told from the other order."""
    if not words and not phones:
        return {()}
    found: set[Reading] = set()
    for word, written, *needed in ENTRIES:
        if (not word or words[:1] == (word,)) and phones[: len(needed)] == tuple(needed):
            rest = readings(words[1:] if word else words, phones[len(needed) :])
            found |= {((written, len(needed)), *each) for each in rest}
    return found


def lattice_readings(lattice: CompactLattice) -> list[Reading]:
    """The same of all paths of a word-aligned lattice whose phones have two frames each."""
    found: list[Reading] = []

    def walk(state: int, so_far: Reading) -> None:
        if lattice.final[state] is not None:
            found.append(so_far)
        for label, weight, target in lattice.arcs[state]:
            walk(target, (*so_far, (label, len(weight.ids) // 2)))

    walk(lattice.start, ())
    return found


def spread(
    rng: np.random.Generator, words: tuple[int, ...], phones: tuple[int, ...]
) -> CompactLattice:
    """A lattice of one path, whose labels stand anywhere."""
    ids = [number for phone in phones for number in (2 * phone - 1, 2 * phone)]
    cuts = sorted(rng.integers(0, len(ids) + 1, len(words)).tolist())
    made = CompactLattice(0)
    made.add_state()
    for label, begin, end in zip(words, [0, *cuts], cuts, strict=False):
        target = made.add_state()
        made.arcs[target - 1].append(
            Arc(label, Weight(single(rng.random()), 0.5, tuple(ids[begin:end])), target)
        )
    made.final[-1] = Weight(0.5, 0.25, tuple(ids[cuts[-1] if cuts else 0 :]))
    return made


def test_all_readings_are_found() -> None:
    rng = np.random.default_rng(0)
    several = 0
    for _ in range(400):
        words: tuple[int, ...] = ()
        phones: tuple[int, ...] = ()
        for _ in range(rng.integers(1, 5)):
            word, _, *needed = ENTRIES[rng.integers(0, len(ENTRIES))]
            words += (word,) if word else ()
            phones += tuple(needed)
        if not phones and not words:
            continue
        wanted = readings(words, phones)
        found, right = lexicon_aligned(spread(rng, words, phones), IDS, LEXICON, pytest.fail)
        got = lattice_readings(found)
        assert right and set(got) <= wanted
        if 9 not in words:
            assert len(got) == len(set(got))
            assert set(got) == wanted
        several += len(wanted) > 1
    assert several > 40


def line(*arcs: tuple[int, tuple[int, ...]]) -> CompactLattice:
    """A lattice of one path."""
    made = CompactLattice(0, [[] for _ in range(len(arcs) + 1)], [None] * len(arcs) + [ONE])
    for state, (label, ids) in enumerate(arcs):
        made.arcs[state].append(Arc(label, Weight(1.0, 0.0, ids), state + 1))
    return made


@pytest.mark.parametrize(
    ("lattice", "wanted"),
    [
        (line((7, (3,)), (9, (7, 7))), [[(7, (3,)), (9, (7, 7))]]),
        # noise that is cut off, or word 7 with another phone
        (line((7, (3,)), (0, (9,))), [[(7, (3, 9))], [(7, (3,)), (91, (9,))]]),
    ],
)
def test_words_that_are_cut_off(lattice: CompactLattice, wanted: list[object]) -> None:
    told: list[str] = []
    options = LexiconAlignOptions(partial_word_label=91)
    # the word without phones would end it too soon
    lexicon = AlignLexicon.of(ENTRIES[:-1])
    found, right = lexicon_aligned(lattice, IDS, lexicon, told.append, options)
    assert not right and told == ["the lattice ends within a word: its last word is cut off"]
    paths = [[(arc.label, arc.weight.ids) for arc in single_path(p)] for p in n_best(found, 9)]
    assert sorted(paths) == sorted(wanted)


def test_lattices_that_are_refused() -> None:
    def align(lattice: CompactLattice, **options: float) -> None:
        lexicon_aligned(lattice, IDS, LEXICON, told.append, LexiconAlignOptions(**options))

    told: list[str] = []
    with pytest.raises(ShapeError, match="is empty: it has no path"):
        align(CompactLattice())
    with pytest.raises(ShapeError, match="11 is no transition-id: the model has 1 to 10"):
        align(line((7, (11,))))
    with pytest.raises(ShapeError, match="word 5 of the lattice is not in the lexicon"):
        align(line((5, (3,))))
    with pytest.raises(ShapeError, match="more than 1002 states: do lattice, model and lexicon"):
        align(line(*[(9, ())] * 400, (7, (3,))), max_expand=0.0025)
    with pytest.raises(OpscopeError, match="max_expand=-1"):
        align(line((7, (3,))), max_expand=-1)


def test_lexicon_files(tmp_path: Path) -> None:
    path = tmp_path / "align_lexicon.int"
    path.write_text("\n".join(" ".join(map(str, entry)) for entry in ENTRIES) + "\n")
    assert AlignLexicon.read(path).words == LEXICON.words
    for text, told in (
        ("", "no pronunciation in this file"),
        ("7 7 2\n7\n", "line 2: two words and phones are wanted"),
        ("7 7 a\n", "line 1: 'a' is no whole number from 1"),
        ("7 7 0\n", "line 1: '0' is no whole number from 1"),
        ("7 7 2\n7 8 2\n", r"word 7 with phones \[2\] stands for 7 and for 8"),
        ("0 0\n", "word 0 without phones"),
    ):
        path.write_text(text)
        with pytest.raises(FormatError, match=told):
            AlignLexicon.read(path)
