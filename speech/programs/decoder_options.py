"""Options of Kaldi's programs that decode: pruning, determinisation, ends of utterances.

Source: Kaldi's `decoder/lattice-faster-decoder.h`, `lat/determinize-lattice-pruned.h`,
`online2/online-endpoint.h`, `online2/online-ivector-feature.h`.
"""

from __future__ import annotations

import re
from dataclasses import fields
from types import SimpleNamespace

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.values import whole_number
from ...nnet3.programs.base.options import UNUSED
from ...nnet3.programs.base.program import Option
from ..lattice.determinise import DeterminiseOptions
from ..recognise.endpoint import DEFAULT_RULES, EndpointOptions, EndpointRule
from ..search.options import MOST_ACTIVE, SearchOptions

DECODER = (
    Option("beam", 16.0, "Decoding beam.  Larger->slower, more accurate"),
    Option("max-active", MOST_ACTIVE, "Most states that are active.  Larger->slower"),
    Option("min-active", 200, "Least number of active states"),
    Option("lattice-beam", 10.0, "Beam of lattices.  Larger->slower, and deeper lattices"),
    Option("prune-interval", 25, "Frames from one pruning of tokens to the next"),
    Option("determinize-lattice", True, "Determinize lattices: of each sequence of words the best"),
    Option("beam-delta", 0.5, "Added to the beam where --max-active or --min-active binds"),
    Option("hash-ratio", 2.0, UNUSED),
    Option("memory-pool-tokens-block-size", 256, UNUSED),
    Option("memory-pool-links-block-size", 256, UNUSED),
    Option("delta", 1 / 1024, "Tolerance of costs in determinization"),
    Option("max-mem", 50_000_000, "About how much memory determinization may use, in bytes"),
    Option("phone-determinize", True, "Determinize by phones and words first"),
    Option("word-determinize", True, "Determinize by words alone"),
    Option("minimize", False, "Push and minimize after determinization"),
)
SYMBOLS = Option("word-symbol-table", "", "Table of words, to print what is decoded")

_RULE_DOCS = {
    "must_contain_nonsilence": "The rule holds only where the best path has more than silence",
    "min_trailing_silence": "Seconds of silence that the best path must end with",
    "max_relative_cost": "Most that final states may cost above the best one",
    "min_utterance_length": "Seconds that the utterance must last",
}
_SILENCE = "endpoint.silence-phones"


def _rule_options() -> tuple[Option, ...]:
    return tuple(
        Option(f"endpoint.rule{number}.{name.replace('_', '-')}", getattr(rule, name), doc)
        for number, rule in enumerate(DEFAULT_RULES, 1)
        for name, doc in _RULE_DOCS.items()
    )


ENDPOINT = (
    Option(_SILENCE, "", "Phones that are silence to the rules, with ':' between"),
    *_rule_options(),
)
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
    return SearchOptions(
        beam=options.beam,
        max_active=options.max_active,
        min_active=options.min_active,
        lattice_beam=options.lattice_beam,
        prune_interval=options.prune_interval,
        beam_delta=options.beam_delta,
    )


def determinise_options(options: SimpleNamespace) -> DeterminiseOptions:
    """How lattices are determinised.

    Raises:
        OpscopeError: a value is out of range.
    """
    return DeterminiseOptions(
        delta=options.delta,
        max_mem=max(options.max_mem, 0),
        phone_determinize=options.phone_determinize,
        word_determinize=options.word_determinize,
        minimize=options.minimize,
    )


def endpoint_options(options: SimpleNamespace) -> EndpointOptions:
    """When utterances are over.

    Raises:
        FormatError: the silence phones are no numbers. OpscopeError: a value is out of range.
    """
    values = vars(options)
    rules = tuple(
        EndpointRule(
            **{each.name: values[f"endpoint_rule{number}_{each.name}"] for each in fields(rule)}
        )
        for number, rule in enumerate(DEFAULT_RULES, 1)
    )
    return EndpointOptions(phone_list(options.endpoint_silence_phones, _SILENCE, ":"), rules)


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
