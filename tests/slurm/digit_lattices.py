"""Utterances of three spoken digits each with alignments and lattices, in Kaldi's layout."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np

from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.lattices.lattice import Arc, CompactLattice, Weight
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.kaldi.tables.streams import open_reader
from opscope.kaldi.tables.tables import TableWriter, read_table

DIGITS = 3


def write_digits(recipe: Path, speech: Path, chain: Path, utterances: int = 40) -> None:
    """Features in `data`, alignments in `ali`, lattices in `lats`; a digit d is the phone d + 1.

    In every other utterance the second digit may be its neighbor as well, at a cost.
    """
    data, ali, lats = (recipe / name for name in ("data", "ali", "lats"))
    for folder in (data, ali, lats):
        folder.mkdir()
    ids = TransitionIds.of(TransitionModel.read_from(open_reader(str(chain / "0.trans_mdl"))))
    digits = dict(line.split() for line in (speech / "train.labels").read_text().splitlines())
    spoken: dict[str, list[tuple[int, np.ndarray]]] = {}
    for key, matrix in read_table(f"ark:{speech}/train.ark", "matrix"):
        spoken.setdefault(key.split("-")[0], []).append((int(digits[key]), matrix))
    rng = np.random.default_rng(0)
    made = []
    for number in range(utterances):
        speaker = sorted(spoken)[number % len(spoken)]
        parts = [spoken[speaker][i] for i in rng.choice(len(spoken[speaker]), DIGITS)]
        made.append((f"{speaker}-{number:03}", parts))
    made.sort(key=lambda pair: pair[0])
    _write_features(data, made)
    jobs = 2
    for job in range(jobs):
        with (
            TableWriter(f"ark:{lats}/lat.{job + 1}", "compact_lattice") as table,
            TableWriter(f"ark:{ali}/ali.{job + 1}", "int_vector") as alignments,
        ):
            for number, (name, parts) in enumerate(made):
                if number * jobs // len(made) == job:
                    table.write(name, lattice(ids, parts, alternative=number % 2 == 0))
                    alignments.write(name, alignment(lattice(ids, parts, alternative=False)))
        for path in (lats / f"lat.{job + 1}", ali / f"ali.{job + 1}"):
            Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    for folder in (ali, lats):
        (folder / "num_jobs").write_text(f"{jobs}\n")
        shutil.copyfile(chain / "0.trans_mdl", folder / "final.mdl")
    shutil.copyfile(chain / "tree", ali / "tree")
    symbols = ["<eps>", *(f"digit{digit}" for digit in range(10))]
    (ali / "phones.txt").write_text("".join(f"{name} {i}\n" for i, name in enumerate(symbols)))


def alignment(found: CompactLattice) -> list[int]:
    """The transition-ids of a lattice of one path."""
    return [number for (arc,) in found.arcs[:-1] for number in arc.weight.ids]


def lattice(
    ids: TransitionIds, parts: list[tuple[int, np.ndarray]], alternative: bool
) -> CompactLattice:
    """Words are digits counted from 1; each arc has all transition-ids of its digit."""
    made = CompactLattice(0)
    for place, (digit, matrix) in enumerate(parts):
        made.add_state()
        choices = [(digit, 1.0)]
        if alternative and place == 1:
            choices.append(((digit + 1) % 10, 2.0))
        for word, cost in choices:
            phone = word + 1
            mine = [i for i in range(1, ids.count + 1) if ids.phone[i] == phone]
            loops = [i for i in mine if ids.is_loop[i]] * (len(matrix) - 1)
            sequence = (next(i for i in mine if ids.is_last[i]), *loops)
            made.arcs[place].append(Arc(phone, Weight(cost, 5.0, sequence), place + 1))
    made.add_state()
    made.final[-1] = Weight()
    return made


def _write_features(data: Path, made: list[tuple[str, list[tuple[int, np.ndarray]]]]) -> None:
    lines: dict[str, list[str]] = {"utt2spk": [], "utt2dur": [], "text": []}
    stats: dict[str, np.ndarray] = {}
    with TableWriter(f"ark,scp:{data}/feats.ark,{data}/feats.scp", "matrix") as feats:
        for name, parts in made:
            matrix = np.concatenate([part for _, part in parts])
            feats.write(name, matrix)
            speaker = name.split("-")[0]
            sums = np.zeros((2, matrix.shape[1] + 1))
            sums[:, :-1] = matrix.sum(0), (matrix.astype(float) ** 2).sum(0)
            sums[0, -1] = len(matrix)
            stats[speaker] = stats.get(speaker, 0) + sums
            lines["utt2spk"].append(f"{name} {speaker}")
            lines["utt2dur"].append(f"{name} {len(matrix) / 100}")
            lines["text"].append(f"{name} {' '.join(str(digit) for digit, _ in parts)}")
    with TableWriter(f"ark,scp:{data}/cmvn.ark,{data}/cmvn.scp", "double_matrix") as table:
        for speaker, sums in sorted(stats.items()):
            table.write(speaker, sums)
    for name, rows in lines.items():
        (data / name).write_text("".join(f"{row}\n" for row in rows))
    speakers = {
        speaker: " ".join(name for name, _ in made if name.split("-")[0] == speaker)
        for speaker in sorted(stats)
    }
    (data / "spk2utt").write_text("".join(f"{s} {names}\n" for s, names in speakers.items()))
    (data / "frame_shift").write_text("0.01\n")
