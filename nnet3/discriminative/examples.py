"""Discriminative examples: features with the supervision of MMI, MPFE and sMBR.

Source: Kaldi's `nnet3/nnet-discriminative-example.cc`.
"""

from __future__ import annotations

from ..chain.examples import NnetChainExample, NnetChainSupervision
from .supervision import DiscriminativeSupervision, merge_supervision


class NnetDiscriminativeSupervision(NnetChainSupervision):
    """The supervision of one output, a `DiscriminativeSupervision`; see `NnetChainSupervision`."""

    token = "NnetDiscriminativeSup"
    weights_in_bytes = True
    read_supervision = DiscriminativeSupervision.read
    merge_supervision = staticmethod(merge_supervision)


class NnetDiscriminativeExample(NnetChainExample):
    """The inputs and the supervised outputs of one example, or of several merged ones."""

    title = "discriminative example"
    token = "Nnet3DiscriminativeEg"
    output_type = NnetDiscriminativeSupervision
