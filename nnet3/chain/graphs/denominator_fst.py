"""Denominator graphs made of a phone language model, a decision tree and a transition model.

Source: `CreateDenominatorFst` and `GetNormalizationFst` in Kaldi's `chain/chain-den-graph.cc`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.sequence import bincount
from ....kaldi.files.context_dependency import ContextDependency
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.fst.algorithms.acceptors import connect
from ....kaldi.fst.algorithms.epsilons import remove_epsilons
from ....kaldi.fst.algorithms.operations import relabel, renumber, reverse, sort_arcs
from ....kaldi.fst.algorithms.partition import minimize_unpushed
from ....kaldi.fst.algorithms.pushing import push_special
from ....kaldi.fst.fst import Fst
from ....kaldi.graphs.hmms import PhoneHmms
from ..denominator import DenominatorGraph
from .hmm_graph import in_context, with_hmms

_PASSES = 3
_WEIGHT_STEP = 10 / 1024  # weights this near are the same to the minimization
_PUSH_DELTA = 0.01 / 1024
_LARGEST = 100.0
_FEW = 3  # arcs of a state that has few of them

Log = Callable[[str], None]


def denominator_fst(
    tree: ContextDependency, model: TransitionModel, lm: Fst, log: Log, warn: Log
) -> Fst:
    """The denominator graph: an acceptor of pdfs counted from 1, without arcs of label 0.

    Args:
        lm: an acceptor of phones, such as `PhoneLanguageModel` estimates.
        log, warn: get the lines that Kaldi's program prints.

    Raises:
        FormatError: the three do not belong together, or no path is left.
    """
    lm = connect(lm)
    if not lm.states:
        raise FormatError("the phone language model has no path")
    if not np.array_equal(lm.ilabel, lm.olabel):
        raise FormatError("the phone language model is a transducer: an acceptor was expected")
    largest = float(np.abs(np.append(lm.weight, lm.final[~np.isinf(lm.final)])).max())
    if not largest <= _LARGEST:
        raise FormatError(
            f"the phone language model has a weight of {largest:g}: -log probabilities of at most"
            f" {_LARGEST:g} were expected"
        )
    log(f"Number of states and arcs in phone-LM FST is {_size(lm)}")
    hmms = PhoneHmms(tree, model)
    context, windows = in_context(lm, tree, model.phones)
    log(f"Number of states and arcs in context-dependent LM FST is {_size(context)}")
    fst = relabel(with_hmms(context, windows, hmms), np.append(0, hmms.pdf[1:] + 1))
    log(f"Number of states and arcs in transition-id FST is {_size(fst)}")
    fst = remove_epsilons(fst)
    log(f"{_TOLD} removing epsilons is {_size(fst)}")
    if not len(fst.arcs):
        raise FormatError("no path of the phone language model has a phone in it")
    fst = _by_transitions(_minimized(fst, log, warn))
    _tell(fst, int(hmms.pdf.max()) + 1, log, warn)
    return fst


_TOLD = "Number of states and arcs in transition-id FST after"


def _size(fst: Fst) -> str:
    return f"{fst.states} and {len(fst.arcs)}"


def _minimized(fst: Fst, log: Log, warn: Log) -> Fst:
    """Equal states merged, as they are entered and as they are left, in turn."""

    def pushed(fst: Fst) -> Fst:
        fst, reached = push_special(fst, _PUSH_DELTA)
        if not reached:
            warn(
                "push-special: finished 200 iterations without converging.  Output will be"
                " inaccurate."
            )
        return fst

    for number in range(1, _PASSES + 1):
        fst = reverse(minimize_unpushed(pushed(connect(reverse(fst))), _WEIGHT_STEP))
        log(f"{_TOLD} reversed minimization is {_size(fst)} (pass {number})")
        fst = minimize_unpushed(pushed(fst), _WEIGHT_STEP)
        log(f"{_TOLD} regular minimization is {_size(fst)} (pass {number})")
    fst = remove_epsilons(fst)
    log(f"{_TOLD} removing any epsilons introduced by reversal is {_size(fst)}")
    return pushed(fst)


def _by_transitions(fst: Fst) -> Fst:
    """States with many arcs, in and out, get the low numbers."""
    count = bincount(fst.source(), minlength=fst.states)
    count += bincount(fst.nextstate, minlength=fst.states)
    number = np.empty(fst.states, np.int64)
    number[np.argsort(-count, kind="stable")] = np.arange(fst.states)
    return renumber(fst, number)


def _tell(fst: Fst, num_pdfs: int, log: Log, warn: Log) -> None:
    for pdf in np.setdiff1d(np.arange(num_pdfs), fst.ilabel - 1).tolist():
        warn(f"Pdf-id {pdf} is not seen in denominator graph.")
    entering = bincount(fst.nextstate, minlength=fst.states)
    few = [int((arcs <= _FEW).sum()) for arcs in (entering, np.diff(fst.begin))]
    log(
        f"Number of states is {fst.states} and arcs {len(fst.arcs)}; number of states with"
        f" in-degree <= {_FEW} is {few[0]} and with out-degree <= {_FEW} is {few[1]}"
    )


def normalization_fst(fst: Fst, num_pdfs: int) -> Fst:
    """The graph for examples: chunks begin in any state, as likely as the state is, and end in any.

    Args:
        fst: a denominator graph of `num_pdfs` pdfs.

    Raises:
        FormatError: a state is never reached in the first frames.
    """
    initial = DenominatorGraph.of_fst(fst, num_pdfs).initial
    if initial.min() <= 0:
        raise FormatError(
            f"state {int(initial.argmin())} of the denominator graph is not reached within 100"
            " frames"
        )
    start = np.full(fst.states, fst.states)
    graph = Fst.of_arcs(
        np.concatenate((fst.source(), start)),
        np.concatenate((fst.ilabel, np.zeros(fst.states, np.int32))),
        np.concatenate((fst.weight, -np.log(initial.astype(np.float32)))),
        np.concatenate((fst.nextstate, np.arange(fst.states))),
        np.append(np.zeros(fst.states), np.inf),
        start=fst.states,
    )
    return sort_arcs(remove_epsilons(graph))
