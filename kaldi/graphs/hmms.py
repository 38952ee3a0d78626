"""The HMMs of phones in context, and what their transitions cost.

Source: Kaldi's `hmm/transition-model.cc` and `hmm/hmm-utils.cc`.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import FormatError
from ..files.context_dependency import ContextDependency
from ..files.transition_model import TransitionModel
from ..fst.algorithms.acceptors import Arc
from .context import Window

_NO_PDF = -1
_CERTAIN = 1e-4  # log-probabilities are rounded
_NEARLY_NEVER = 1e-10  # probability of leaving a state whose self-loop takes all


class TransitionCosts:
    """The transitions of a model by number, and their costs.

    Attributes:
        pdf, state_of, cost: output, transition state and -log probability of each transition-id.
        count: how many transition-ids there are, and one for 0, which is none.
        loop: the self-loop of each transition state; 0: it has none. leaving: -log probability of
            not taking it.

    Raises:
        FormatError: the model is damaged.
    """

    def __init__(self, model: TransitionModel) -> None:
        transitions = model.transitions()
        self.pdf = transitions.pdf
        self.count = len(transitions.pdf)
        self.state_of = transitions.state.tolist()
        if len(model.log_probs) != self.count:
            raise FormatError(
                f"the transition model has {len(model.log_probs) - 1} probabilities for "
                f"{self.count - 1} transitions"
            )
        if not np.all(model.log_probs[1:] <= _CERTAIN) or not np.isfinite(model.log_probs).all():
            raise FormatError("the transition model has log-probabilities that are none")
        self.loop = [0] * (len(model.tuples) + 1)
        for ident in np.flatnonzero(transitions.is_loop).tolist():
            self.loop[self.state_of[ident]] = ident
        self.cost = -model.log_probs
        self.leaving = np.zeros(len(self.loop), np.float32)
        for state, ident in enumerate(self.loop):
            if ident:
                stay = np.exp(model.log_probs[ident])
                leave = np.float32(1) - stay
                self.leaving[state] = -np.log(leave if leave > 0 else np.float32(_NEARLY_NEVER))


class PhoneHmms(TransitionCosts):
    """The HMMs of phones in context, as a tree and a transition model give them.

    Raises:
        FormatError: the model is damaged.
    """

    def __init__(self, tree: ContextDependency, model: TransitionModel) -> None:
        super().__init__(model)
        self._tree = tree
        self._model = model
        self._rows = {tuple(row): number for number, row in enumerate(model.tuples.tolist(), 1)}
        states = np.arange(len(model.tuples) + 2)
        self._first = np.searchsorted(self.state_of, states).tolist()
        self._known: dict[tuple[int, ...], int] = {}
        self.hmms: list[list[list[Arc]]] = []
        """The arcs of each state of each HMM, without self-loops; labels are transition-ids."""

    def of_window(self, window: Window) -> int:
        """The number of the HMM of a phone in context.

        Raises:
            FormatError: the tree has no output for it, or the model none of its states or no such
                phone; or the window has another width than the tree's.
        """
        if len(window) != self._tree.width:
            raise FormatError(f"phones {window}, where the tree wants {self._tree.width} of them")
        phone = window[self._tree.central]
        if not 0 < phone < len(self._model.entry_of) or self._model.entry_of[phone] < 0:
            raise FormatError(f"the transition model has no phone {phone}")
        entry = self._model.entries[self._model.entry_of[phone]]
        classes = {one for state in entry for one in (state.forward, state.self_loop)}
        places = dict(enumerate(window))
        pdfs: dict[int, int] = {}
        for number in sorted(classes - {_NO_PDF}):
            outputs = self._tree.outputs(places, number)
            if len(outputs) != 1:
                raise FormatError(f"the tree has no output for class {number} of phones {window}")
            pdfs[number] = outputs.pop()
        key = (phone, *pdfs.values())
        if key not in self._known:
            self._known[key] = len(self.hmms)
            self.hmms.append(self._hmm(phone, pdfs))
        return self._known[key]

    def _hmm(self, phone: int, pdfs: dict[int, int]) -> list[list[Arc]]:
        """The HMM of a phone whose classes of outputs are these pdfs."""
        entry = self._model.entries[self._model.entry_of[phone]]
        hmm: list[list[Arc]] = []
        for place, state in enumerate(entry):
            if (state.forward == _NO_PDF) != (state.self_loop == _NO_PDF):
                raise FormatError(
                    f"state {place} of phone {phone} has the classes {state.forward} and"
                    f" {state.self_loop}; one of them is no class"
                )
            arcs: list[Arc] = []
            for index, (target, probability) in enumerate(state.transitions):
                if not 0 <= target < len(entry):
                    raise FormatError(f"phone {phone} has no state {target} in the topology")
                if target == place:
                    continue
                if state.forward == _NO_PDF:
                    arcs.append((0, np.float32(-np.log(np.float32(probability))), target))
                    continue
                row = self._row(phone, place, pdfs[state.forward], pdfs[state.self_loop])
                ident = self._first[row] + index
                arcs.append((ident, self.cost[ident] - self.leaving[row], target))
            hmm.append(arcs)
        return hmm

    def _row(self, phone: int, place: int, forward: int, stay: int) -> int:
        """The transition state of an HMM state with its outputs."""
        key = (phone, place, forward, stay)
        row = self._rows.get(key if self._model.opening == "<Tuples>" else key[:3])
        if row is None:
            raise FormatError(
                f"the transition model has no state {place} of phone {phone} with outputs "
                f"{forward} and {stay}, which the tree gives it: they do not belong together"
            )
        return row
