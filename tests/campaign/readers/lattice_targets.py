"""The campaign's readers of lattices, and of all that supervision of chain examples is made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opscope.kaldi.files.context_dependency import ContextDependency, new_transition_model
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.lattices.lattice import CompactLattice, split, top_sorted
from opscope.kaldi.lattices.lattice_io import read_compact_lattice
from opscope.kaldi.lattices.operations import best_path, pruned
from opscope.kaldi.lattices.phone_align import PhoneAlignOptions, phone_aligned
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.chain.graphs.phone_graphs import Tolerances, alignment_graph, lattice_graph
from opscope.nnet3.chain.supervisions.supervision_maker import SupervisionMaker

from ..inputs import Target
from .mutate import BYTES, TEXT

_TREE = b"""ContextDependency 2 1 ToPdf TE 1 4 ( NULL
TE -1 2 ( SE 0 [ 0 2 ]
{ CE 0 CE 1 } CE 2 ) TE -1 2 ( CE 3 CE 4 ) TE -1 2 ( CE 5 CE 6 ) ) EndContextDependency """
_RIGHT = b"""ContextDependency 2 0 ToPdf TE 0 4 ( NULL TE -1 2 ( CE 0 CE 1 )
TE -1 2 ( CE 2 CE 3 ) TE -1 2 ( CE 4 CE 5 ) ) EndContextDependency """
_TOPOLOGY = b"""<Topology> <TopologyEntry> <ForPhones> 1 2 3 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.4 <Transition> 1 0.3 <Transition> 2 0.3 </State>
<State> 1 <PdfClass> 1 <Transition> 1 0.5 <Transition> 2 0.5 </State>
<State> 2 </State> </TopologyEntry> </Topology> """
_PHONES = [(1, 4), (2, 6), (3, 3)]
_TIMES = Tolerances(2, 2, 2, 0.5)
_TEXT = b"\n0\t1\t7\t1,2.5,%b\n0\t1\t3\t0.5,2,%b\n1\t2\t0\t0.25,3,%b\n2\t3,4,\n\n"


def _parsed(tree: bytes) -> ContextDependency:
    return ContextDependency.read(Reader(tree, binary=False))


def _model(tree: bytes = _TREE) -> TransitionModel:
    return new_transition_model(_parsed(tree), Reader(_TOPOLOGY, binary=False))


def _lattice() -> CompactLattice:
    """Words over two phones, of which the first has an alternative."""
    ids = TransitionIds.of(_model())
    phones = []
    for phone in (1, 3, 2):
        mine = [i for i in range(1, ids.count + 1) if ids.phone[i] == phone]
        last = next(i for i in mine if ids.is_last[i])
        loop = next(i for i in mine if ids.is_loop[i] and ids.state[i] == ids.state[last])
        phones.append(b"_".join(b"%d" % i for i in (last, loop, loop, loop)))
    return read_compact_lattice(Reader(_TEXT % tuple(phones), binary=False))


def _lattices(folder: Path) -> Sequence[bytes]:
    found = []
    for kind, lattice in (("compact_lattice", _lattice()), ("lattice", split(_lattice()))):
        for form in ("ark", "ark,t"):
            with TableWriter(f"{form}:{folder}/l", kind) as table:
                table.write("a", lattice)
                table.write("b", lattice)
            found.append((folder / "l").read_bytes())
    return found


def _reads_lattices(path: Path) -> None:
    for kind in ("compact_lattice", "lattice"):
        for _, lattice in read_table(f"ark:{path}", kind):
            lattice.scaled(0.5, 2.0)
            best_path(pruned(top_sorted(lattice), 4.0))


def _makes_phones(path: Path) -> None:
    model = _model()
    maker, ids = SupervisionMaker(_parsed(_TREE), model), TransitionIds.of(model)
    for _, lattice in read_table(f"ark:{path}", "compact_lattice"):
        told: list[str] = []
        phone_aligned(lattice, ids, PhoneAlignOptions(), told.append)
        options = PhoneAlignOptions(replace_output_symbols=True)
        aligned, _ = phone_aligned(lattice, ids, options, told.append)
        maker.make(lattice_graph(top_sorted(aligned), _TIMES))


def _phones(folder: Path) -> Sequence[bytes]:
    found = []
    for form in ("ark", "ark,t"):
        with TableWriter(f"{form}:{folder}/p", "int_pair_vector") as table:
            table.write("a", _PHONES)
        found.append((folder / "p").read_bytes())
    return found


def _reads_phones(path: Path) -> None:
    maker = SupervisionMaker(_parsed(_RIGHT), _model(_RIGHT))
    for _, pairs in read_table(f"ark:{path}", "int_pair_vector"):
        maker.make(alignment_graph([(a, b) for a, b in pairs.tolist()], _TIMES))


def _models(folder: Path) -> Sequence[bytes]:
    found = []
    for binary in (True, False):
        writer = Writer(binary)
        _model().write_to(writer)
        found.append(writer.getvalue())
    return found


def _reads_model(path: Path) -> None:
    model = TransitionModel.read_from(Reader(path))
    for to_pdfs in (True, False):
        SupervisionMaker(_parsed(_TREE), model, to_pdfs=to_pdfs).make(
            alignment_graph(_PHONES, _TIMES)
        )


def _reads_tree(path: Path) -> None:
    tree = ContextDependency.read(Reader(path))
    SupervisionMaker(tree, _model()).make(alignment_graph(_PHONES, _TIMES))


TARGETS = (
    Target("Kaldi lattices", ".ark", _lattices, _reads_lattices, (*BYTES, *TEXT)),
    Target("Kaldi lattices of phones", ".ark", _lattices, _makes_phones, (*TEXT, *BYTES)),
    Target("phones with lengths", ".ark", _phones, _reads_phones, (*TEXT, *BYTES)),
    Target("model of a supervision", ".mdl", _models, _reads_model, (*TEXT, *BYTES)),
    Target("tree of a supervision", ".tree", lambda _: [_TREE], _reads_tree, TEXT),
)
