"""The campaign's command lines, and files of them, of the programs that decode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from opscope.framework.base.errors import OpscopeError
from speech_decoding import write_decoding

from ..inputs import Target
from .mutate import BYTES, TEXT
from .program_targets import WORDS, one_a_line, prepare, run_line, run_words, workplace

_CACHE = "opscope.speech.fst.graph_cache.cache_folder"

_OFFLINE = "nnet3-latgen-faster --lattice-beam=1 --beam=5 --max-mem=50000"
_ONLINE = (
    "online2-wav-nnet3-latgen-faster --mfcc-config=mfcc.conf --lattice-beam=1 --beam=5"
    " --max-mem=50000"
    " --ivector-extraction-config=ivector_extractor.conf"
)
_HEARD = "final.mdl HCLG.fst ark:spk2utt ark:wav.ark ark:o.lat"
_LINES = (
    f"{_OFFLINE} --ivectors=ark:ivectors.ark final.mdl HCLG.fst ark:feats.ark ark:o ark,t:w ark:a",
    f"{_OFFLINE} --online-ivectors=ark:online.ark --online-ivector-period=10 --minimize=true"
    " --determinize-lattice=true --allow-partial final.mdl HCLG.fst ark:feats.ark ark,t:o",
    f"{_OFFLINE} --ivectors=ark:ivectors.ark --determinize-lattice=false --max-active=7"
    " --min-active=2 --word-symbol-table=words.txt final.mdl HCLG.fst ark:feats.ark ark:o",
    f"{_ONLINE} --online=false {_HEARD}",
    f"{_ONLINE} --chunk-length=0.1 --do-endpointing=true --endpoint.silence-phones=1 {_HEARD}",
    f"{_ONLINE} --ivector-silence-weighting.silence-phones=1:2"
    f" --ivector-silence-weighting.silence-weight=0.1 --frames-per-chunk=6 {_HEARD}",
)
_FILES = ("HCLG.fst", "final.mdl", "feats.ark", "wav.ark", "words.txt", "mfcc.conf")
_OF_ONLINE = ("wav.ark", "mfcc.conf")


def _lines(folder: Path) -> Sequence[bytes]:
    prepare(folder, write_decoding)
    return [one_a_line(line) for line in _LINES]


def _files(folder: Path) -> Sequence[bytes]:
    """The files that programs read, each behind its name."""
    prepare(folder, write_decoding)
    whole = folder / "whole"
    return [name.encode() + b"\n" + (whole / name).read_bytes() for name in _FILES]


def _reads_file(path: Path) -> None:
    """A program reads a file that is another."""
    name, _, data = path.read_bytes().partition(b"\n")
    known = name.decode("latin-1")
    if known not in _FILES:
        raise OpscopeError("the name of the file is damaged")
    line = one_a_line(_LINES[3 if known in _OF_ONLINE else 2])
    with workplace(path.parent), patch(_CACHE, return_value=None):
        Path(known).write_bytes(data)
        run_line(line.decode().split("\n"))


TARGETS = (
    Target("programs that decode", ".args", _lines, run_words, WORDS),
    Target("files of a decoder", ".bin", _files, _reads_file, (*BYTES, *TEXT)),
)
