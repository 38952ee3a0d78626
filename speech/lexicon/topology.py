"""The topology of phones: a chain of states; silence has more ways through its states.

Source: Kaldi's `utils/gen_topo.pl`.
"""

from __future__ import annotations

from collections.abc import Iterable


def topology(phones: Iterable[int], states: int, silence: Iterable[int], of_silence: int) -> str:
    """The text of a `topo` file.

    Args:
        phones, silence: the numbers of phones that are not silence, and that are. states,
            of_silence: how many states each of them has.
    """
    entries = (phones, _chain_of_states(states)), (silence, _states_of_silence(of_silence))
    blocks = [
        f"<TopologyEntry>\n<ForPhones>\n{' '.join(map(str, each))}\n</ForPhones>\n{text}"
        "</TopologyEntry>\n"
        for each, text in entries
    ]
    return f"<Topology>\n{''.join(blocks)}</Topology>\n"


def _state(number: int, transitions: Iterable[tuple[int, float]]) -> str:
    arcs = "".join(f"<Transition> {to} {share:.15g} " for to, share in transitions)
    return f"<State> {number} <PdfClass> {number} {arcs}</State>\n"


def _chain_of_states(count: int) -> str:
    states = (_state(i, ((i, 0.75), (i + 1, 0.25))) for i in range(count))
    return f"{''.join(states)}<State> {count} </State>\n"


def _states_of_silence(count: int) -> str:
    """The first and last of them apart, each of the states leads to each of the inner ones."""
    if count == 1:
        return _chain_of_states(1)
    share = 1 / (count - 1)
    first = _state(0, ((to, share) for to in range(count - 1)))
    inner = (_state(i, ((to, share) for to in range(1, count))) for i in range(1, count - 1))
    last = _state(count - 1, ((count - 1, 0.75), (count, 0.25)))
    return f"{first}{''.join(inner)}{last}<State> {count} </State>\n"
