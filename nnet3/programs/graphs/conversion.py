"""Kaldi's program that converts alignments from one model to another.

Source: Kaldi's `bin/convert-ali.cc`, `hmm/tree-accu.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError, ShapeError
from ....framework.base.untrusted.values import whole_number
from ....kaldi.files.context_dependency import ContextDependency
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.tables.streams import Files, open_reader
from ....kaldi.tables.tables import read_table
from ...chain.supervisions.converted_alignments import AlignmentConverter
from ..base.program import Option, program
from ..base.saving import fail_unless
from ..base.table_copies import write_table

_MOST = (1 << 31) - 2


def read_phone_map(name: str) -> dict[int, int]:
    """The new phone of each old one, of a file with both in each line.

    Raises:
        FormatError: a line holds something else, or a phone that stood there before; or the file is
            empty.
    """
    reader = Files().reader(name)
    mapped: dict[int, int] = {}
    for number, line in enumerate(bytes(reader.data[reader.offset :]).splitlines(), 1):
        place = f"{reader.name}: line {number}"
        words = line.decode("utf-8", "replace").split()
        if len(words) != 2:
            raise FormatError(f"{place}: an old phone and a new one were expected")
        old, new = (whole_number(word, place, 1, _MOST) for word in words)
        if old in mapped:
            raise FormatError(f"{place}: phone {old} is mapped twice")
        mapped[old] = new
    if not mapped:
        raise FormatError(f"{reader.name}: the phone map is empty")
    return mapped


@program(
    "convert-ali",
    "Convert alignments from one decision tree and model to another.",
    (
        "<old-model>",
        "<new-model>",
        "<new-tree>",
        "<old-alignments-rspecifier>",
        "<new-alignments-wspecifier>",
    ),
    Option("phone-map", "", "File with an old phone and the new one that it becomes in each line"),
    Option("reorder", True, "Self-loops stand after the transition that leaves their state"),
    Option("repeat-frames", False, "With --frame-subsampling-factor: keep the number of frames"),
    Option("frame-subsampling-factor", 1, "Leave one frame of this many"),
)
def convert_ali(
    options: SimpleNamespace, old: str, new: str, tree: str, source: str, output: str
) -> None:
    warn = options.program.warn
    factor = options.frame_subsampling_factor
    if factor < 1:
        raise FormatError(f"--frame-subsampling-factor={factor} must be at least 1")
    phone_map = read_phone_map(options.phone_map) if options.phone_map else None
    before, after = (TransitionModel.read_from(open_reader(name)) for name in (old, new))
    topologies = [(model.phones, model.entry_of, model.entries) for model in (before, after)]
    if topologies[0] != topologies[1]:
        warn("Topologies of models are not equal: states of phones that differ are drawn")
    converter = AlignmentConverter(
        before,
        after,
        ContextDependency.read(open_reader(tree)),
        phone_map,
        reorder=options.reorder,
    )
    failed = 0

    def converted() -> Iterator[tuple[str, np.ndarray]]:
        nonlocal failed
        for key, ids in read_table(source, "int_vector"):
            try:
                yield key, converter.convert(ids, factor, repeat=options.repeat_frames)
            except ShapeError as error:
                warn(f"Could not convert alignment for key {key}: {error}")
                failed += 1
            except FormatError as error:
                raise FormatError(f"{source}: {key}: {error}") from error

    done = write_table(output, "int_vector", converted())
    options.program.log(f"Succeeded converting alignments for {done} files, failed for {failed}")
    fail_unless(done)
