"""Files of CNTK's readers of sparse records, of DBN.exe and of Kaldi's nnet1, by their bytes."""

from __future__ import annotations

import struct

import numpy as np

from opscope.kaldi.files.kaldi_io import Writer

RECORDS = 7
DIM = 20


def rows(seed: int, count: int = RECORDS, dim: int = DIM) -> list[list[tuple[int, float]]]:
    """Elements (index, value) of records; the third one has none."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        size = 0 if number == 2 else int(rng.integers(1, 4))
        places = sorted(rng.choice(dim, size, replace=False).tolist())
        made.append([(place, float(np.float32(rng.normal()))) for place in places])
    return made


def elements(record: list[tuple[int, float]], code: str) -> bytes:
    """Number, values, indices."""
    places, values = zip(*record, strict=True) if record else ((), ())
    count = len(record)
    return struct.pack(f"<i{count}{code}{count}i", count, *values, *places)


def dense(records: list[list[tuple[int, float]]], dim: int = DIM) -> np.ndarray:
    out = np.zeros((len(records), dim))
    for row, record in zip(out, records, strict=True):
        for place, value in record:
            row[place] = value
    return out


def dssm(folder, code="f", name="q", seed=0, count=RECORDS):
    body, places = b"", []
    for record in rows(seed, count):
        places.append(len(body))
        body += elements(record, code)
    head = struct.pack("<qiq", count, DIM, sum(map(len, rows(seed, count))))
    (folder / name).write_bytes(head + struct.pack(f"<{count}q", *places) + body)


def libsvm(folder, code="f", batch=3):
    """A feature, a label of two numbers; batches of 3, 3 and 1 records."""
    records, labels = rows(0), np.arange(2.0 * RECORDS).reshape(-1, 2)
    head = struct.pack("<qqii", RECORDS, -(-RECORDS // batch), 1, 1)
    head += struct.pack("<i1si", 1, b"Q", DIM) + struct.pack("<i5si", 5, b"click", 2)
    body, places = b"", []
    for begin in range(0, RECORDS, batch):
        places.append(len(body))
        part = records[begin : begin + batch]
        flat = [element for record in part for element in record]
        bounds = np.cumsum([0] + [len(record) for record in part]).tolist()
        body += struct.pack("<i", len(part)) + elements(flat, code)
        body += struct.pack(f"<{len(bounds)}i", *bounds)
        body += labels[begin : begin + batch].astype(f"<{code}").tobytes()
    path = folder / "train.bin"
    path.write_bytes(head + struct.pack(f"<{len(places)}q", *places) + body)


def corpus(folder, code="f", verification=0, count=RECORDS):
    body = b""
    for number, (document, query) in enumerate(zip(rows(1, count), rows(0, count), strict=True)):
        body += elements(query, code) + elements(document, code)  # the last name first
        body += struct.pack(f"<{code}", number / 2)
        body += struct.pack("<i", verification) if verification else b""
    (folder / "pairs.bin").write_bytes(body)


INPUTS, HIDDEN, OUTPUTS = 6, 4, 3
_RNG = np.random.default_rng(0)
MEAN, DEVIATION = np.float32([0.5, -1]), np.float32([2, 0.5])
PRIOR = np.float32([0.5, 0.25, 0.25])
HIDDEN_KINDS = ("rbmgaussbernoulli", "rbmisalinearbernoulli", "rbmbernoullibernoulli")
SIZES = (INPUTS, HIDDEN, HIDDEN, HIDDEN)
WEIGHTS = [
    (_RNG.normal(size=(b, a)).astype(np.float32), _RNG.normal(size=b).astype(np.float32))
    for a, b in zip(SIZES, (*SIZES[1:], OUTPUTS), strict=True)
]


def _matrix(name: str, values: np.ndarray) -> bytes:
    rows, columns = values.shape
    head = b"BMAT" + name.encode() + b"\0" + struct.pack("<ii", rows, columns)
    return head + values.astype("<f4").tobytes("F") + b"EMAT"


def dbn(comment: str = "", complete: bool = True) -> bytes:
    """Layers with a sigmoid, linear, with a sigmoid, and where it is complete the outputs."""
    kinds = (*HIDDEN_KINDS, *(["perceptron"] if complete else []))
    data = b"DBN" + (b"\n" + comment.encode() if comment else b"") + b"\0BDBN"
    data += struct.pack("<ii", 0, len(kinds))
    data += _matrix("gmean", MEAN[:, None]) + _matrix("gstddev", DEVIATION[:, None]) + b"BNET"
    for kind, (weight, bias) in zip(kinds, WEIGHTS, strict=False):
        data += kind.encode() + b"\0" + _matrix("W", weight.T) + _matrix("a", bias[:, None])
        data += _matrix("b", np.zeros((0, 0)))
    return data + b"ENET" + (_matrix("Pu", PRIOR[:, None]) if complete else b"") + b"EDBN"


def transform(binary: bool) -> bytes:
    """Windows of 3 frames, shifted and scaled; the first and the last three numbers added up."""
    w = Writer(binary)
    w.write_token("<Nnet>")
    for kind, output, given, data in (
        ("<Splice>", 6, 2, np.array([-1, 0, 1], np.int32)),
        ("<AddShift>", 6, 6, np.arange(6, dtype=np.float32)),
        ("<Rescale>", 6, 6, np.full(6, 0.5, np.float32)),
        ("<Copy>", 6, 6, np.array([6, 5, 4, 3, 2, 1], np.int32)),
        ("<AffineTransform>", 2, 6, np.repeat(np.eye(2, dtype=np.float32), 3, axis=1)),
        ("<Tanh>", 2, 2, None),
    ):
        w.write_token(kind)
        w.write_int32(output)
        w.write_int32(given)
        if kind in ("<AddShift>", "<AffineTransform>"):
            w.write_token("<LearnRateCoef>")
            w.write_float(1)
        if data is not None and data.dtype == np.int32:
            w.write_int_vector(data)
        elif data is not None:
            (w.write_matrix if data.ndim == 2 else w.write_vector)(data)
        if kind == "<AffineTransform>":
            w.write_vector(np.float32([0.25, -0.25]))
        w.write_token("<!EndOfComponent>")
    w.write_token("</Nnet>")
    return bytes(w.take())
