"""Names that an error suggests are those that `difflib` finds near."""

from __future__ import annotations

import difflib
import random

import pytest

from opscope.framework.base.errors import near_names


@pytest.mark.parametrize("letters", ["ab", "abcdef_A", "<learnigRat>"])
def test_no_near_name_is_passed_over(letters: str) -> None:
    rng = random.Random(letters)
    found = 0
    for _ in range(300):
        known = ["".join(rng.choices(letters, k=rng.randrange(12))) for _ in range(12)]
        given = "".join(letter for letter in rng.choice(known) * 2 if rng.random() < 0.6)
        wanted = difflib.get_close_matches(given, list(dict.fromkeys(known)), n=3, cutoff=0.6)
        if wanted:
            assert near_names(given, known) == wanted
            found += 1
    assert found > 50
