"""Operations on transducers in C give what those in Python do, to the bit and to the message."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fst_relations import random_transducer
from opscope.framework.base.errors import ShapeError
from opscope.kaldi.fst.algorithms import compiled
from opscope.kaldi.fst.algorithms.compose import compose
from opscope.kaldi.fst.algorithms.determinize_star import determinize_star
from opscope.kaldi.fst.algorithms.local_epsilons import remove_epsilons_locally
from opscope.kaldi.fst.algorithms.partition import minimize_unpushed
from opscope.kaldi.fst.fst import Fst

pytestmark = pytest.mark.skipif(compiled.library() is None, reason="no compiler")


def described(operation: Callable[[], Fst]) -> tuple[object, ...]:
    try:
        made = operation()
    except ShapeError as error:
        return (str(error),)
    arrays = made.final.tobytes(), made.begin.tolist(), made.arcs.tobytes()
    return made.start, made.header.properties, *arrays


OPERATIONS: dict[str, Callable[[Fst, Fst], Fst]] = {
    "compose": compose,
    "compose unconnected": lambda one, two: compose(one, two, connected=False),
    "determinize": lambda one, _: determinize_star(one, most_states=300),
    "epsilons": lambda one, _: remove_epsilons_locally(one),
    "epsilons in log": lambda one, _: remove_epsilons_locally(one, log=True),
    "epsilons, best": lambda one, _: remove_epsilons_locally(one, sums_in_log=False),
    "minimize": lambda one, two: minimize_unpushed(compose(one, two), 1.0),
    "minimize one": lambda one, _: minimize_unpushed(one, 2.0),
    "determinize in log": lambda one, _: determinize_star(one, most_states=300, log=True),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_c_is_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        arcs = int(rng.integers(10, 22))
        one, two = (random_transducer(rng, 9, arcs, 3, loops=loops) for loops in (True, False))
        # functional: outputs follow from inputs
        pairs += [(one, two), (two.with_columns(olabel=two.ilabel // 2), one)]
    found = [described(lambda pair=pair: OPERATIONS[name](*pair)) for pair in pairs]
    monkeypatch.setattr(compiled, "library", lambda *_: None)
    assert found == [described(lambda pair=pair: OPERATIONS[name](*pair)) for pair in pairs]
    assert sum(len(each) > 1 for each in found) > 20
