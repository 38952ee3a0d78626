"""Kaldi's own training scripts, taken from a given copy of Kaldi, with data to train on.

`OPSCOPE_KALDI_SOURCE` names a folder of Kaldi's sources, or a git directory of theirs; nothing of
Kaldi is part of this project.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np

from kaldi_models import one_state_model
from opscope.kaldi.tables.tables import TableWriter

_NAMES = ("egs/wsj/s5/steps", "egs/wsj/s5/utils", "egs/wsj/s5/path.sh", "tools/config")
SOURCE = Path(os.environ.get("OPSCOPE_KALDI_SOURCE") or "no-kaldi")
PHONES = 3
_TREE = """ContextDependency 1 0 ToPdf TE 0 4 ( NULL CE 0 CE 1 CE 2 )
EndContextDependency """


def missing() -> str:
    """Why the scripts cannot be had; empty if they can."""
    if not SOURCE.exists():
        return "OPSCOPE_KALDI_SOURCE names no copy of Kaldi"
    absent = [name for name in ("perl", "bash", "gunzip", "awk") if shutil.which(name) is None]
    return f"no {', '.join(absent)}" if absent else ""


def unpack(folder: Path) -> Path:
    """Copy the scripts into a folder; returns Kaldi's `egs/wsj/s5` there."""
    if (SOURCE / "egs").exists():
        command = ["tar", "c", "-C", str(SOURCE), *_NAMES]
    else:
        command = ["git", "--git-dir", str(SOURCE), "archive", "HEAD", *_NAMES]
    packed = subprocess.run(command, check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", str(folder)], input=packed, check=True)
    return folder / "egs" / "wsj" / "s5"


def write_data(recipe: Path, utterances: int = 24, frames: int = 40) -> None:
    """Features, alignments and class ids in the folders `data`, `ali` and `targets.scp`."""
    data, ali = recipe / "data", recipe / "ali"
    for folder in (data, ali):
        folder.mkdir()
    rng = np.random.default_rng(0)
    names = [f"s{number % 4}-u{number:02}" for number in range(utterances)]
    names.sort()
    lines: dict[str, list[str]] = {"utt2spk": [], "utt2dur": [], "text": []}
    stats: dict[str, np.ndarray] = {}
    with (
        TableWriter(f"ark,scp:{data}/feats.ark,{data}/feats.scp", "matrix") as feats,
        TableWriter(f"ark,scp:{data}/ids.ark,{recipe}/targets.scp", "int_vector") as ids,
        TableWriter(f"ark:{ali}/ali.1", "int_vector") as first,
        TableWriter(f"ark:{ali}/ali.2", "int_vector") as second,
    ):
        for number, name in enumerate(names):
            classes = np.repeat(rng.integers(0, PHONES, frames // 4), 4)
            matrix = np.float32(2 * np.eye(PHONES, 4)[classes] + rng.normal(size=(frames, 4)) + 1)
            speaker = name[:2]
            feats.write(name, matrix)
            ids.write(name, classes)
            (first, second)[2 * number // utterances].write(name, 2 * classes + 1)
            sums = np.zeros((2, 5))
            sums[:, :4] = matrix.sum(0), (matrix**2).sum(0)
            sums[0, 4] = frames
            stats[speaker] = stats.get(speaker, 0) + sums
            lines["utt2spk"].append(f"{name} {speaker}")
            lines["utt2dur"].append(f"{name} {frames / 100}")
            lines["text"].append(f"{name} a")
    with TableWriter(f"ark,scp:{data}/cmvn.ark,{data}/cmvn.scp", "double_matrix") as table:
        for speaker, sums in sorted(stats.items()):
            table.write(speaker, sums)
    for name, rows in lines.items():
        (data / name).write_text("".join(f"{row}\n" for row in rows))
    (data / "spk2utt").write_text(
        "".join(
            f"{speaker} {' '.join(name for name in names if name.startswith(speaker))}\n"
            for speaker in sorted(stats)
        )
    )
    (data / "frame_shift").write_text("0.01\n")
    for number in (1, 2):
        path = ali / f"ali.{number}"
        (ali / f"ali.{number}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    (ali / "num_jobs").write_text("2\n")
    (ali / "final.mdl").write_text(one_state_model(PHONES))
    (ali / "tree").write_text(_TREE)
    (ali / "phones.txt").write_text("<eps> 0\na 1\nb 2\nc 3\n")


def write_chain(egs: Path, chain: Path, ali: Path, archives: int = 2) -> None:
    """Chain examples in Kaldi's layout, made of reference data, and the tree, transition model and
    alignments that they were made with."""
    (egs / "info").mkdir(parents=True)
    examples = (chain / "egs.two.ark").read_bytes()
    names = [f"cegs.{number}.ark" for number in range(1, archives + 1)]
    names += ["valid_diagnostic.cegs", "train_diagnostic.cegs", "combine.cegs"]
    for name in names:
        (egs / name).write_bytes(examples)
    info = {"feat_dim": 40, "ivector_dim": 0, "left_context": 4, "right_context": 4}
    info |= {"left_context_initial": -1, "right_context_final": -1, "frames_per_eg": 60}
    for name, value in (info | {"num_archives": archives}).items():
        (egs / "info" / name).write_text(f"{value}\n")
    shutil.copyfile(chain / "tree", ali / "tree")
    shutil.copyfile(chain / "0.trans_mdl", ali / "final.mdl")
    lines = (chain / "durs.txt").read_text().splitlines()
    half = len(lines) // 2
    for number in (1, 2):
        with TableWriter(f"ark:{ali}/ali.{number}", "int_vector") as table:
            for line in lines[:half] if number == 1 else lines[half:]:
                name, rest = line.split(None, 1)
                pairs = [tuple(map(int, pair.split())) for pair in rest.split(";")]
                # a state's self-loop has the number before that of the transition that leaves it
                ids = [[2 * phone, *[2 * phone - 1] * (frames - 1)] for phone, frames in pairs]
                table.write(name, np.array(sum(ids, []), np.int32))
        path = ali / f"ali.{number}"
        (ali / f"ali.{number}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def write_features(data: Path, dim: int) -> None:
    """A table of two matrices, from which scripts learn the dimension of features."""
    data.mkdir()
    with TableWriter(f"ark,scp:{data}/feats.ark,{data}/feats.scp", "matrix") as feats:
        for speaker in range(2):
            feats.write(f"s{speaker}-u0", np.zeros((3, dim), np.float32))
    for name, line in (("utt2spk", "s{0}-u0 s{0}\n"), ("spk2utt", "s{0} s{0}-u0\n")):
        (data / name).write_text("".join(line.format(speaker) for speaker in range(2)))
