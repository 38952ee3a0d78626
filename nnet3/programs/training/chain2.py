"""Kaldi's programs for chain models of several languages, an output and a graph for each.

The output of a language is `output-LANGUAGE`, its denominator graph `LANGUAGE.den.fst` in a folder;
which language an example is of stands in its key, after `?lang=`; else it is `default`.
Source: Kaldi's `chainbin/nnet3-chain-train2.cc`, `nnet3-chain-combine2.cc`,
`nnet3/nnet-chain-training2.cc`.
"""

from __future__ import annotations

import os
import re
from types import SimpleNamespace

from ....framework.base.errors import FormatError
from ...chain.denominator import DenominatorGraph
from ...chain.examples import NnetChainExample
from ...egs.chain_changes import in_language
from ...network.nnet import Nnet
from ..base.program import program
from .chain import COMBINING_CHAIN, TRAINING, combine_chain, read_graph, train_chain
from .train import read_raw

_LANGUAGE = re.compile(r"output-([A-Za-z0-9_-]+)\Z")


class LanguageGraphs(dict[str, DenominatorGraph]):
    """Denominator graphs by output; a graph is read when it is first asked for.

    Args:
        folder: of the graphs. nnet: the network whose outputs they are for.
    """

    def __init__(self, folder: str, nnet: Nnet) -> None:
        super().__init__()
        self._folder = folder
        self._nnet = nnet

    def __missing__(self, output: str) -> DenominatorGraph:
        language = _LANGUAGE.match(output)
        if language is None:
            raise FormatError(f"the output {output!r} has no language: output-LANGUAGE is wanted")
        name = os.path.join(self._folder, f"{language[1]}.den.fst")
        self[output] = graph = read_graph(name, self._nnet, output)
        return graph


def _in_language(key: str, example: NnetChainExample) -> NnetChainExample:
    return in_language(key, example, "default")


@program(
    "nnet3-chain-train2",
    "Train a raw nnet3 network with LF-MMI, with an output and a denominator graph for each"
    " language, one step for each (merged) chain example.",
    ("<raw-nnet-in>", "<den-fst-dir>", "<chain-training-examples-in>", "<raw-nnet-out>"),
    *TRAINING,
)
def nnet3_chain_train2(
    options: SimpleNamespace, model: str, folder: str, examples: str, output: str
) -> None:
    nnet = read_raw(model)
    graphs = LanguageGraphs(folder, nnet)
    train_chain(options, nnet, graphs, examples, output, _in_language)


@program(
    "nnet3-chain-combine2",
    "Average the first n of several raw nnet3 networks (the last one first), with the n that has"
    " the best LF-MMI objective on chain examples, which may be of several languages.",
    ("<den-fst-dir>", "<raw-nnet-in>...", "<chain-examples-in>", "<raw-nnet-out>"),
    *COMBINING_CHAIN,
)
def nnet3_chain_combine2(options: SimpleNamespace, folder: str, *files: str) -> None:
    combine_chain(options, lambda nnet: LanguageGraphs(folder, nnet), files, _in_language)
