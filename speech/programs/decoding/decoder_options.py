"""Options of Kaldi's programs that decode: pruning, determinization, ends of utterances.

Source: Kaldi's `decoder/lattice-faster-decoder.h`, `lat/determinize-lattice-pruned.h`,
`online2/online-endpoint.h`, `online2/online-ivector-feature.h`.
"""

from __future__ import annotations

import re
from types import SimpleNamespace

from ....framework.base.errors import FormatError
from ....framework.base.untrusted.values import whole_number
from ....kaldi.lattices.determinize import DeterminiseOptions
from ....nnet3.programs.base.options import UNUSED
from ....nnet3.programs.base.program import Option, from_values, options_of
from ...recognize.endpoint import SILENCE, EndpointOptions, rules_from
from ...search.options import MOST_ACTIVE, SearchOptions

DECODER = (
    *options_of(SearchOptions),
    *options_of(DeterminiseOptions),
    Option("determinize-lattice", True, "Determinize lattices: of each sequence of words the best"),
    Option("hash-ratio", 2.0, UNUSED),
    Option("memory-pool-tokens-block-size", 256, UNUSED),
    Option("memory-pool-links-block-size", 256, UNUSED),
)
SYMBOLS = Option("word-symbol-table", "", "Table of words, to print what is decoded")
_WEIGHTING = "ivector-silence-weighting"
WEIGHTING = (
    Option(
        f"{_WEIGHTING}.silence-phones",
        "",
        "Phones whose frames count less in iVectors, with ':' or ',' between",
    ),
    Option(f"{_WEIGHTING}.silence-weight", 1.0, "Weight of those frames"),
    Option(
        f"{_WEIGHTING}.max-state-duration",
        -1.0,
        "Runs of a transition-id that are so long count as silence (if > 0)",
    ),
)


def search_options(options: SimpleNamespace) -> SearchOptions:
    """How the search prunes; its log-likelihoods come with the acoustic scale.

    Raises:
        OpscopeError: a value is out of range.
    """
    return from_values(SearchOptions, vars(options))


def determinize_options(options: SimpleNamespace) -> DeterminiseOptions:
    """How lattices are determinized.

    Raises:
        OpscopeError: a value is out of range.
    """
    return from_values(DeterminiseOptions, vars(options), max_mem=max(options.max_mem, 0))


def endpoint_options(options: SimpleNamespace) -> EndpointOptions:
    """When utterances are over.

    Raises:
        FormatError: the silence phones are no numbers. OpscopeError: a value is out of range.
    """
    rules = rules_from(vars(options))
    return EndpointOptions(phone_list(options.endpoint_silence_phones, SILENCE.name, ":"), rules)


def phone_list(text: str, name: str, separators: str = ":,") -> tuple[int, ...]:
    """The phones of an option's value, e.g. `1:2:3`.

    Raises:
        FormatError: it is something else.
    """
    if not text:
        return ()
    parts = re.split(f"[{separators}]", text)
    if "" in parts:
        raise FormatError(f"--{name}={text}: phones as 1:2:3 are wanted")
    return tuple(whole_number(part, f"--{name}={text}", 1, MOST_ACTIVE) for part in parts)
