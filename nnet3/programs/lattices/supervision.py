"""chain-get-supervision: what the outputs of a network may be in each frame of an utterance.

Source: Kaldi's `chainbin/chain-get-supervision.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from ....framework.base.errors import ShapeError
from ....kaldi.files.context_dependency import ContextDependency
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import TableWriter, read_table
from ...chain.graphs.phone_graphs import PhoneGraph, Tolerances, alignment_graph, lattice_graph
from ...chain.supervisions.supervision_maker import SupervisionMaker
from ..base.options import errors_tell, shown
from ..base.program import Option, from_values, options_of, program
from ..base.saving import fail_unless


@program(
    "chain-get-supervision",
    "Make supervision for chain examples of phones with lengths (ali-to-phones"
    " --write-lengths=true), or of lattices (lattice-align-phones --replace-output-symbols=true).",
    (
        "<tree>",
        "<transition-model>",
        "<phones-with-lengths-or-lattice-rspecifier>",
        "<supervision-wspecifier>",
    ),
    *options_of(Tolerances),
    Option("weight", 1.0, "Taken for compatibility: Kaldi writes the weight 1 whatever it says"),
    Option("convert-to-pdfs", True, "Labels are pdfs counted from 1; else transition-ids"),
    Option("lattice-input", False, "Read lattices"),
)
def chain_get_supervision(
    options: SimpleNamespace, tree: str, model: str, source: str, output: str
) -> None:
    log, warn = options.program.log, options.program.warn
    tolerances = from_values(Tolerances, vars(options))
    if options.weight != 1:
        warn(f"--weight={options.weight:g} has no effect: supervision has the weight 1, as Kaldi's")
    if options.lm_scale and not options.lattice_input:
        warn("--lm-scale has no effect without --lattice-input: phones have no costs")
    transitions = TransitionModel.read_from(open_reader(model))
    maker = SupervisionMaker(
        ContextDependency.read(open_reader(tree)), transitions, to_pdfs=options.convert_to_pdfs
    )
    failed = 0
    with TableWriter(output, "supervision") as writer:
        for key, value in shown(_values(source, options.lattice_input), "prepare", "utterances"):
            try:
                graph = _graph(value, tolerances)
            except ShapeError as error:
                warn(str(error))
                warn(f"Error creating proto-supervision for utterance {key}")
                failed += 1
                continue
            with errors_tell(f"{source}: {key}"):
                supervision = maker.make(graph)
            if supervision is None:
                warn("Supervision FST is empty (too many phones for too few frames?)")
                warn(f"Failed creating supervision for utterance {key}")
                failed += 1
                continue
            writer.write(key, supervision)
        done = writer.count
    log(f"Generated chain supervision information for {done} utterances, errors on {failed}")
    fail_unless(done > failed)


def _values(source: str, lattices: bool) -> Iterator[tuple[str, Any]]:
    return read_table(source, "compact_lattice" if lattices else "int_pair_vector")


def _graph(value: Any, tolerances: Tolerances) -> PhoneGraph:
    if hasattr(value, "arcs"):
        return lattice_graph(value, tolerances)
    return alignment_graph([(phone, frames) for phone, frames in value.tolist()], tolerances)
