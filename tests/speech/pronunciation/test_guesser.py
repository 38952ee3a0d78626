"""Pronunciations guessed from a lexicon: words that were held back, and mistakes."""

from __future__ import annotations

import pytest

from opscope.framework.base.errors import FormatError
from opscope.speech.pronunciation.guesser import Guesser
from opscope.speech.pronunciation.joint_alignment import aligned
from spelling import phones_of, words


@pytest.fixture(scope="module")
def guesser() -> Guesser:
    known = [(word, phones_of(word)) for word in words(1500)]
    return Guesser.trained([("<unk>", ("NOISE",)), *known, ("ah", ("A",) * 20)])


def test_letters_are_aligned_to_what_they_sound_like() -> None:
    known = words(400)
    letters = [[ord(letter) - ord("a") for letter in word] for word in known]
    table = sorted({phone for word in known for phone in phones_of(word)})
    phones = [[table.index(phone) for phone in phones_of(word)] for word in known]
    made = aligned([*letters, [0]], [*phones, [0] * 9])
    assert made[-1] is None
    wrong = 0
    for word, row, pairs in zip(known, phones, made, strict=False):
        assert pairs is not None
        assert [each for pair in pairs for each in pair[1]] == row
        assert "".join(chr(x + ord("a")) for pair in pairs for x in pair[0]) == word
        wrong += any(pair[0] == (ord("x") - ord("a"),) and len(pair[1]) != 2 for pair in pairs)
    assert wrong < len(known) / 100


def test_words_that_were_held_back(guesser: Guesser) -> None:
    known = set(words(1500))
    held_back = [word for word in words(400, 7) if word not in known]
    right = sum(guesser.guess(word)[0].phones == phones_of(word) for word in held_back)
    assert len(held_back) > 100 and right > 0.97 * len(held_back)


def test_the_most_likely_come_first(guesser: Guesser) -> None:
    found = guesser.guess("Shar-PAX", 5)
    assert found[0].phones == ("S2", "A", "R", "P", "A", "K", "S")
    shares = [each.probability for each in found]
    assert shares == sorted(shares, reverse=True) and 0.5 < sum(shares) <= 1 + 1e-9
    assert len({each.phones for each in found}) == 5


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("zap", "the word 'zap': no word of the lexicon has the letter 'z'"),
        ("-", "the word '-' has no letters"),
    ],
)
def test_words_that_cannot_be_guessed(guesser: Guesser, word: str, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        guesser.guess(word)


def test_nothing_to_learn_from() -> None:
    with pytest.raises(FormatError, match="no word of the lexicon can be aligned"):
        Guesser.trained([("<unk>", ("SPN",))])


def test_a_few_words_and_hangul() -> None:
    guesser = Guesser.trained([("가나", ("k", "a", "n", "a")), ("나무", ("n", "a", "m", "u"))])
    assert guesser.guess("무가")[0].phones == ("m", "u", "k", "a")
