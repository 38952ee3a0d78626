"""Where records of differing lengths begin in a file of millions of them.

Each record says where the next one begins, so that they would be read one after the other, in
Python. Here many readers begin at once, at places all over the file that look like records; those
whose way begins where the one before ends were right.
"""

from __future__ import annotations

import numpy as np

_READERS = 1 << 11
_RECORDS_A_ROUND = 1 << 7  # what a loop reads while all readers take a step: a bound of rounds
_LEAST = 1 << 15  # records from which on this is worth it
_LOOK, _AHEAD = 32, 16  # places that a reader tries, records that must follow there
_WORD = 4  # bytes; places differ by these


def first_records(
    data: np.ndarray, offset: int, count: int, head: int, place: int, item: int
) -> np.ndarray:
    """Where records begin, for as many of the first ones as this way reaches.

    Args:
        data: the file, uint8. offset: where the first record begins. count: how many there are.
        head, place, item: see `ByteFile.record_starts`.

    Returns:
        int64, [1 to count + 1]: where records begin, and the one after them would.
    """
    if count < _LEAST or any(size % _WORD for size in (head, place, item)):
        return np.array([offset])
    words = np.frombuffer(data, "<u4", (len(data) - offset) // _WORD, offset)
    walk = _Walk(words, head // _WORD, place // _WORD, item // _WORD)
    at = _likely(walk)
    upto = np.append(at[1:], len(words))
    lanes = np.arange(len(at), dtype=np.int16)
    ends = at.copy()
    places = []
    owners = []
    for _ in range(count // _RECORDS_A_ROUND):
        after, good = walk.step(at)
        good = np.flatnonzero(good)
        lanes, at, after = lanes[good], at[good], after[good]
        places.append(at)
        owners.append(lanes)
        ends[lanes] = after
        on = np.flatnonzero(after < upto[lanes])
        lanes, at = lanes[on], after[on]
        if not len(lanes):
            break
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    # the first reader who did not end where the next one began was the last one to be right
    last = int(np.flatnonzero(ends != np.append(upto[:-1], -1))[0])
    right = int(np.searchsorted(owner[order], last, "right"))
    begins = np.append(np.concatenate(places)[order[:right]], ends[last])
    return offset + _WORD * begins[: count + 1]


class _Walk:
    """Steps from record to record, of many readers; all numbers are words."""

    def __init__(self, words: np.ndarray, head: int, place: int, item: int) -> None:
        self.words = words
        self._head = head
        self._place = place
        self._item = item

    def step(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the records at some places end, and whether there are such records."""
        size = len(self.words)
        inside = (at >= 0) & (at + self._head <= size)
        where = np.where(inside, at + self._place, 0)
        low = self.words[where].astype(np.int64)
        high = self.words[where + 1]
        room = (size - at - self._head) // self._item
        good = inside & (high == 0) & (low <= room)
        return at + self._head + np.where(good, low, 0) * self._item, good


def _likely(walk: _Walk) -> np.ndarray:
    """Where readers begin: the first one at the first record, others where records may be.

    A reader that takes something else for a record soon meets the way of those that do not: where
    some records end that follow each other, there is most likely one.
    """
    stride = max(len(walk.words) // _READERS, _LOOK)
    at = np.arange(stride, len(walk.words), stride)[:, None] + np.arange(_LOOK)
    likely = np.ones(at.shape, bool)
    for _ in range(_AHEAD):
        at, good = walk.step(at)
        likely &= good
    some = np.flatnonzero(likely.any(axis=1))
    return np.unique(np.append(0, at[some, likely[some].argmax(axis=1)]))
