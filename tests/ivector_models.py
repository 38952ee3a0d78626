"""A small iVector model in files, as a Vosk model has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from opscope.kaldi.files.kaldi_io import Writer
from opscope.kaldi.files.packed import packed, write_packed

DIM, SPLICED, GAUSSIANS, IVECTOR = 3, 2, 7, 4
OFFSET = 5.0


def gaussians(binary: bool = True) -> bytes:
    """A `final.dubm` over two features."""
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.ones(GAUSSIANS)).astype(np.float32)
    inverse = rng.uniform(0.5, 2, (GAUSSIANS, SPLICED)).astype(np.float32)
    means = rng.normal(size=(GAUSSIANS, SPLICED)).astype(np.float32) * 2
    writer = Writer(binary)
    writer.write_token("<DiagGMM>")
    writer.write_token("<GCONSTS>")
    writer.write_vector(np.zeros(GAUSSIANS, np.float32))  # nobody trusts them
    writer.write_token("<WEIGHTS>")
    writer.write_vector(weights)
    for token, matrix in (("<MEANS_INVVARS>", means * inverse), ("<INV_VARS>", inverse)):
        writer.write_token(token)
        writer.write_matrix(matrix)
    writer.write_token("</DiagGMM>")
    return writer.getvalue()


def extractor(binary: bool = True) -> bytes:
    """A `final.ie`."""
    rng = np.random.default_rng(2)
    writer = Writer(binary)
    writer.write_token("<IvectorExtractor>")
    writer.write_token("<w>")
    writer.write_matrix(np.zeros((0, 0)))
    writer.write_token("<w_vec>")
    writer.write_vector(np.full(GAUSSIANS, 1 / GAUSSIANS))
    writer.write_token("<M>")
    writer.write_int32(GAUSSIANS)
    for _ in range(GAUSSIANS):
        writer.write_matrix(rng.normal(size=(SPLICED, IVECTOR)))
    writer.write_token("<SigmaInv>")
    for _ in range(GAUSSIANS):
        root = rng.normal(size=(SPLICED, SPLICED))
        write_packed(writer, packed(root @ root.T + np.eye(SPLICED)))
    writer.write_token("<IvectorOffset>")
    writer.write_double(OFFSET)
    writer.write_token("</IvectorExtractor>")
    return writer.getvalue()


def matrix(values: np.ndarray, binary: bool = True) -> bytes:
    """A matrix in a file."""
    writer = Writer(binary)
    writer.write_matrix(values)
    return writer.getvalue()


def write_model(folder: Path, binary: bool = True) -> None:
    """All files of the model, and an `ivector_extractor.conf` that names them."""
    rng = np.random.default_rng(3)
    lda = rng.normal(size=(SPLICED, 3 * DIM + 1)).astype(np.float32) / 5
    stats = np.array([[1e3, 20.0, -30.0, 100.0], [1.1e4, 900.0, 700.0, 0.0]])
    files = {
        "final.dubm": gaussians(binary),
        "final.ie": extractor(binary),
        "final.mat": matrix(lda, binary),
        "global_cmvn.stats": matrix(stats, binary),
        "online_cmvn.conf": b"# nothing\n",
        "splice.conf": b"--left-context=1\n--right-context=1\n",
    }
    names = {
        "diag-ubm": "final.dubm",
        "ivector-extractor": "final.ie",
        "lda-matrix": "final.mat",
        "global-cmvn-stats": "global_cmvn.stats",
        "cmvn-config": "online_cmvn.conf",
        "splice-config": "splice.conf",
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    lines = [f"--{option}={folder / name}" for option, name in names.items()]
    lines += ["--num-gselect=3", "--min-post=0.025", "--posterior-scale=0.1", "--max-count=3"]
    (folder / "ivector_extractor.conf").write_text("\n".join(lines) + "\n")
