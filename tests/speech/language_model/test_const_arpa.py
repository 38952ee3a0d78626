"""Const-ARPA: log-probabilities as an n-gram model has them, far blocks, old files, damage."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import numpy as np
import pytest

from language_models import log10
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.speech.language_model import const_arpa as module
from opscope.speech.language_model.arpa import read_arpa
from opscope.speech.language_model.const_arpa import ConstArpa, ConstArpaAutomaton, const_arpa
from opscope.speech.language_model.model import NgramModel

GOLDEN = Path(__file__).parents[2] / "golden" / "rescoring"
ARPA = """\\data\\
ngram 1=6
ngram 2=4
ngram 3=3

\\1-grams:
-99 1 -0.25
-1 2
-0.5 3 -0.5
-0.75 4 -0.125
-2 6 -1
-1.5 9

\\2-grams:
-0.25 1 3 -0.5
-0.5 3 4 -0.0625
-1 3 6
-0.75 4 2

\\3-grams:
-0.125 1 3 4
-0.375 1 3 6
-0.625 3 4 2

\\end\\
"""


def made(tmp_path: Path, unknown: int = 3) -> tuple[NgramModel, ConstArpa]:
    (tmp_path / "m.arpa").write_text(ARPA)
    model = read_arpa(tmp_path / "m.arpa")
    return model, const_arpa(model, 1, 2, unknown)


def test_probabilities(tmp_path: Path) -> None:
    model, compact = made(tmp_path)
    words = [1, 2, 3, 4, 6, 9]
    for length in range(4):
        for history in itertools.product(words, repeat=length):
            for word in words:
                found = compact.log_probability(word, history)
                wanted = np.log(10) * log10(model, str(word), tuple(map(str, history[-2:])))
                assert found == pytest.approx(wanted, rel=1e-6)
    assert compact.log_probability(77, (5, 4)) == compact.log_probability(3, (3, 4))
    _, bare = made(tmp_path, unknown=-1)
    assert bare.log_probability(77, (4,)) == -np.inf
    assert bare.log_probability(4, (5,)) == bare.log_probability(4, ())


def test_the_automaton_keeps_the_histories_that_count(tmp_path: Path) -> None:
    automaton = ConstArpaAutomaton(made(tmp_path, unknown=-1)[1])
    first = automaton.arc(automaton.start, 3)
    assert first is not None and first[1] == pytest.approx(0.25 * np.log(10))
    state, cost = automaton.arc(first[0], 4)
    assert cost == pytest.approx(0.125 * np.log(10))
    # 3 4 is a history; 4 6 is none, and neither is 6.
    assert automaton.final(state) == pytest.approx(0.625 * np.log(10))
    empty, cost = automaton.arc(state, 6)
    assert cost == pytest.approx((0.0625 + 0.125 + 2) * np.log(10))
    assert automaton.arc(empty, 9) == (empty, pytest.approx(1.5 * np.log(10)))
    assert automaton.arc(empty, 5) is None


def test_blocks_beyond_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near = made(tmp_path)[1]
    monkeypatch.setattr(module, "_NEAR", 4)
    far = made(tmp_path)[1]
    assert len(far.far) and not len(near.far)
    writer = Writer()
    far.write_to(writer)
    far = ConstArpa.read(Reader(writer.getvalue()))
    for history in itertools.product([1, 3, 4], repeat=2):
        for word in (2, 3, 4, 6):
            one, two = (m.log_probability(word, history) for m in (near, far))
            assert one == two


def test_files_of_the_oldest_form(tmp_path: Path) -> None:
    compact = made(tmp_path)[1]
    parts = [struct.pack("<bi", 4, value) for value in (1, 2, 3, 3, len(compact.blocks))]
    parts += [struct.pack("<bi", 4, value) for value in compact.blocks.tolist()]
    parts.append(struct.pack("<bi", 4, len(compact.unigrams)))
    parts += [struct.pack("<bq", 8, value) for value in compact.unigrams.tolist()]
    parts.append(struct.pack("<bi", 4, 0))
    old = ConstArpa.read(Reader(b"\0B" + b"".join(parts)))
    for name in ("blocks", "unigrams", "far"):
        np.testing.assert_array_equal(getattr(old, name), getattr(compact, name))
    assert old.log_probability(4, (1, 3)) == compact.log_probability(4, (1, 3))


def test_damaged_files_are_refused_or_never_lead_out_of_the_array() -> None:
    data = (GOLDEN / "big.carpa").read_bytes()
    whole = ConstArpa.read(Reader(data))
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        spoiled = bytearray(data)
        for at in rng.integers(2, len(data), 4):
            spoiled[at] = rng.integers(256)
        try:
            model = ConstArpa.read(Reader(bytes(spoiled)))
            for history in itertools.product((1, 3, 4, 5), repeat=3):
                model.log_probability(6, history)
                model.is_history(history)
        except FormatError:
            refused += 1
    assert 50 < refused < 300 and whole.order == 4
    for end in (3, 40, 600, len(data) - 1):
        with pytest.raises(FormatError):
            ConstArpa.read(Reader(data[:end]))
