"""The kinds of values in tables that nnet3 has: examples of all sorts, and chain supervision."""

from __future__ import annotations

from typing import Any

from ...kaldi.files.kaldi_io import Reader
from ...kaldi.tables.kinds import Kind, write_value
from ..files.examples import NnetExample


def _read_chain_example(reader: Reader) -> Any:
    from ..chain.examples import NnetChainExample  # such values are few

    return NnetChainExample.read(reader)


def _read_discriminative_example(reader: Reader) -> Any:
    from ..discriminative.examples import NnetDiscriminativeExample

    return NnetDiscriminativeExample.read(reader)


def _read_supervision(reader: Reader) -> Any:
    from ..chain.supervisions.supervision import Supervision

    return Supervision.read(reader)


KINDS = (
    Kind("example", NnetExample.read, write_value),
    Kind("chain_example", _read_chain_example, write_value),
    Kind("discriminative_example", _read_discriminative_example, write_value),
    Kind("supervision", _read_supervision, write_value),
)
