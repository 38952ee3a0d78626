"""Kaldi's programs that make the denominator graph of LF-MMI, and the language model for it.

Source: Kaldi's `chainbin/chain-est-phone-lm.cc`, `chainbin/chain-make-den-fst.cc`.
"""

from __future__ import annotations

from types import SimpleNamespace

from ....framework.base.errors import FormatError, ShapeError
from ....kaldi.files.context_dependency import ContextDependency
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import read_table
from ...chain.graphs.denominator_fst import denominator_fst, normalization_fst
from ...chain.graphs.phone_lm import PhoneLanguageModel, PhoneLmOptions
from ..base.graphs import open_fst, save_fst
from ..base.options import BINARY
from ..base.program import from_values, options_of, program


@program(
    "chain-est-phone-lm",
    "Estimate an n-gram model of phones without smoothing, for denominator graphs: an acceptor that"
    " is deterministic and has no arcs without labels.",
    ("<phone-seqs-rspecifier>", "<phone-lm-fst-out>"),
    BINARY,
    *options_of(PhoneLmOptions),
)
def chain_est_phone_lm(options: SimpleNamespace, source: str, output: str) -> None:
    log = options.program.log
    lm = PhoneLanguageModel(from_values(PhoneLmOptions, vars(options)), log)
    log("Reading phone sequences")
    for key, phones in read_table(source, "int_vector"):
        try:
            lm.add(phones.tolist())
        except ShapeError as error:
            raise FormatError(f"{source}: {key}: {error}") from error
    log("Estimating phone LM")
    save_fst(lm.estimate(), output, options.binary)
    log(f"Estimated phone language model and wrote it to {output}")


@program(
    "chain-make-den-fst",
    "Make the denominator graph, an acceptor of pdfs counted from 1, and the same graph for the"
    " making of examples, which may begin and end in any state.",
    (
        "<tree>",
        "<transition-model>",
        "<phone-lm-fst>",
        "<denominator-fst-out>",
        "<normalization-fst-out>",
    ),
)
def chain_make_den_fst(
    options: SimpleNamespace, tree: str, model: str, lm: str, output: str, normalization: str
) -> None:
    log, warn = options.program.log, options.program.warn
    transitions = TransitionModel.read_from(open_reader(model))
    graph = denominator_fst(
        ContextDependency.read(open_reader(tree)), transitions, open_fst(lm), log, warn
    )
    normal = normalization_fst(graph, transitions.transitions().num_pdfs)
    save_fst(graph, output)
    save_fst(normal, normalization)
    log(f"Write denominator FST to {output} and normalization FST to {normalization}")
