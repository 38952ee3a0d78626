"""Many readers of records find what one that reads them in turn does."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError
from opscope.kaldi.fst.files import byte_file, records
from opscope.kaldi.fst.files.byte_file import ByteFile

COUNT = 40000


def file_of(seed: int, place: int, item: int, behind: int) -> ByteFile:
    """Records of a head of 12 bytes, between other bytes."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, 3, COUNT) * random.integers(0, 2 + 3 * seed, COUNT)
    parts = [random.bytes(7)]
    for count in counts.tolist():
        head = bytearray(random.bytes(12))
        head[place : place + 8] = int(count).to_bytes(8, "little")
        parts += [bytes(head), random.integers(0, 9, count * item // 4, np.int32).tobytes()]
    data = np.frombuffer(b"".join([*parts, random.bytes(behind)]), np.uint8)
    file = ByteFile(data, "records")
    file.skip(7, "a head")
    return file


def in_turn(data: np.ndarray, offset: int, *_: int) -> np.ndarray:
    return np.array([offset])


def told(file: ByteFile, place: int, item: int) -> tuple[object, int]:
    """The records, or the error, and where the cursor is behind them."""
    begin = file.offset
    try:
        found: object = file.record_starts(COUNT, 12, place, item, "records").tolist()
    except FormatError as error:
        found = str(error)
    end, file.offset = file.offset, begin
    return found, end


@pytest.mark.parametrize(("place", "item"), [(0, 8), (4, 16), (4, 6)])
@pytest.mark.parametrize(("seed", "behind"), [(0, 0), (1, 3), (2, 500_000)])
def test_many_readers_find_what_one_does(
    seed: int, behind: int, place: int, item: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_of(seed, place, item, behind)
    found = told(file, place, item)
    some = records.first_records(file.data, file.offset, COUNT, 12, place, item)
    assert len(some) == (COUNT + 1 if item % 4 == 0 else 1)
    monkeypatch.setattr(byte_file, "first_records", in_turn)
    assert told(file, place, item) == found


@pytest.mark.parametrize("seed", range(6))
def test_of_damaged_records_too(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of(1, 0, 8, 100)
    random = np.random.default_rng(seed)
    data = file.data.copy()
    data[random.integers(100, len(data), 1 + seed)] ^= 255
    damaged = ByteFile(data[: len(data) - int(random.integers(0, 2)) * 4096], "records")
    damaged.skip(7, "a head")
    found = told(damaged, 0, 8)
    monkeypatch.setattr(byte_file, "first_records", in_turn)
    assert told(damaged, 0, 8) == found
