"""The BLAS that NumPy computes products with, and the number of its threads."""

from __future__ import annotations

from typing import Any

import numpy as np


def controllers() -> list[Any]:
    """What threadpoolctl finds of NumPy's BLAS; nothing where that is not known to it."""
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(user_api="blas").lib_controllers
    own = [one for one in found if np.__name__ in one.filepath]  # which its wheels bring along
    return own or (found if len(found) == 1 else [])


class BlasThreads:
    """Carries the number of threads to NumPy's BLAS.

    A number that somebody chose goes there. One that follows the load goes there only where
    products are left to its own threads; then it never exceeds what it was in the beginning.

    Attributes:
        always: whether products are left to its own threads.
    """

    def __init__(self, libraries: list[Any]) -> None:
        self._libraries = libraries
        self._first = [one.get_num_threads() for one in libraries]
        self.always = False

    def __call__(self, number: int, chosen: bool) -> None:
        for one, first in zip(self._libraries, self._first, strict=True):
            wanted = number if chosen else min(number, first) if self.always else first
            if one.get_num_threads() != wanted:
                one.set_num_threads(wanted)
