"""Every command that takes FSTs takes them in every type: a table of commands and of types.

Both are lists of the package: a type that the reader has, or a program whose usage names an FST,
is tested from then on. A command gets an FST of each type, and must do with it what it does with
the same FST as a `vector`: write the same files, or fail with the same message. With one of them at
least it does something.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import click
import numpy as np
import pytest

import opscope
from chain_graphs import random_supervision
from fst_types import KINDS, sample
from ivector_models import DIM
from kaldi_models import call_main
from opscope.framework.base.errors import OpscopeError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.kaldi.fst.files.byte_file import ByteFile
from opscope.kaldi.fst.files.fst_io import read_whole, write_fst
from opscope.kaldi.tables.tables import TableWriter
from opscope.nnet3.chain.examples import NnetChainExample, NnetChainSupervision
from opscope.nnet3.files.examples import NnetIo
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.programs import PROGRAMS
from opscope.nnet3.programs.base.saving import write_model
from opscope.python_api.cli.main import main
from opscope.speech.fst.graph_folder import load_graph
from opscope.speech.programs import PROGRAMS as SPEECH_PROGRAMS
from opscope.speech.trees.gaussian_models import GaussianModel, single
from speech_decoding import LENGTHS, PHONES, write_decoding

CONFIG = """
input-node name=input dim=2
component name=affine type=NaturalGradientAffineComponent input-dim=2 output-dim=2
component-node name=affine component=affine input=input
output-node name=output input=affine
output-node name=output-default input=affine
"""
TREE = """ContextDependency 1 0 ToPdf TE 0 5 ( NULL
CE 0
CE 1
CE 2
CE 3
)
EndContextDependency """
# What stands for an argument of that name; others are outputs.
GIVEN = {
    **dict.fromkeys(("nnet-in", "nnet3-in", "trans-model", "transition-model"), "final.mdl"),
    **dict.fromkeys(("raw-nnet-in", "raw-nnet-in...", "raw-nnet3-model-in"), "0.raw"),
    **dict.fromkeys(("chain-training-examples-in", "training-examples-in"), "ark:egs.ark"),
    **dict.fromkeys(("chain-examples-in", "egs-rspecifier"), "ark:egs.ark"),
    **dict.fromkeys(("model", "trans-model-in"), "final.mdl"),
    "chain-supervision-rspecifier": "ark:sup.ark",
    "den-fst-dir": "fsts",
    **dict.fromkeys(("disambig-syms", "in-disambig-list", "out-disambig-list"), "disambig.int"),
    "features-rspecifier": "ark:feats.ark",
    "hcl-fst-in": "HCLr.fst",  # of one type alone
    "lattice-rspecifier": "ark:lats",
    "loglikes-rspecifier": "ark:logs.ark",
    "model-in": "gmm.mdl",
    "nnet-chain-model": "0.raw",
    "spk2utt-rspecifier": "ark:spk2utt",
    "transcriptions-rspecifier": "ark:text",
    "tree": "tree",
    "wav-rspecifier": "scp:wav.scp",
}
_IVECTORS = "--ivectors=ark:ivectors.ark"
_FRAMES = "--num-frames=8", "--srand=0"
OPTIONS = {
    "make-grammar-fst": ("--nonterm-phones-offset=9",),
    "nnet3-align-compiled": (_IVECTORS,),
    "nnet3-chain-compute-post": (_IVECTORS,),
    "nnet3-chain-get-egs": _FRAMES,
    "nnet3-chain-e2e-get-egs": ("--num-frames=40", "--srand=0"),
    **{
        f"nnet3-latgen-faster{form}": (_IVECTORS, "--acoustic-scale=1.0")
        for form in ("", "-batch", "-lookahead", "-looped", "-looped-parallel", "-parallel")
    },
    "online2-wav-nnet3-latgen-faster": (
        *("--mfcc-config=mfcc.conf", "--ivector-extraction-config=ivector_extractor.conf"),
        "--acoustic-scale=1.0",
    ),
}
REFUSED = {"add-self-loops": "x.fst: the graph already has self-loops"}
"""What a program says of the labels that every FST here has."""
# The widths of counts in files are one thing to a command: `test_fst_types` has them all.
FORMS = [kind for kind in KINDS if not re.search(r"\d", kind)]
_FST = re.compile(r"fst|graph")
_NO_FST = re.compile(r"out>?]?\Z|wspecifier|grammar-fst")  # a grammar is a file of several FSTs
_TIME = re.compile(r"^\w+ \([^)]*\) |taking [-.e\d]+ seconds")

Case = tuple[str, tuple[str, ...]]
"""A program and the names of its arguments."""


def _names(usage: str) -> list[str]:
    """What one argument may be; nothing where it may be left out and is no FST."""
    if usage.startswith("[") and not _is_fst(usage):
        return [""]
    return re.sub(r"[][<>]", "", usage).split("|")


def _is_fst(name: str) -> bool:
    return bool(_FST.search(name)) and not _NO_FST.search(name)


def cases() -> list[Case]:
    """The programs that take FSTs, once for each form of their arguments."""
    found = []
    for program in (*PROGRAMS, *SPEECH_PROGRAMS):
        command = main.get_command(click.Context(main), program)
        usage = getattr(command, "files", ())
        if any(map(_is_fst, usage)):
            forms = itertools.product(*map(_names, usage))
            found += [(program, tuple(filter(None, form))) for form in forms]
    return found


@cache
def samples(form: str) -> tuple[bytes, bytes]:
    """The file of an FST, and that of the same FST, and of what its header says, as a vector."""
    fst, data = sample(form)
    writer = Writer(header=False)
    write_fst(replace(fst, header=read_whole(ByteFile(data, form)).header), writer, "vector")
    return data, writer.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, features, examples: what programs take besides FSTs."""
    path = tmp_path_factory.mktemp("fsts")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        write_decoding()
        Nnet.from_config_text(CONFIG, 0).write("0.raw")
        Path("tree").write_text(TREE)
        Path("disambig.int").write_text("9\n")
        Path("text").write_text("a 1 2\nb 3\n")
        transitions = TransitionModel.read_from(Reader("final.mdl"))
        gaussians = [single(np.zeros(DIM), np.ones(DIM))] * PHONES
        write_model(GaussianModel(transitions, gaussians), "gmm.mdl", True)
        words = "".join(
            f"{at} {at + 1} {label} 1,1,1\n" for at in range(3) for label in range(1, 9)
        )
        Path("lats").write_text(f"a\n{words}0\n1\n2\n3\n\n")
        Path("fsts").mkdir()
        Path("HCLr.fst").write_bytes(sample("olabel_lookahead")[1])
        rng = np.random.default_rng(0)
        with TableWriter("ark:sup.ark", "supervision") as table:
            for key, frames in LENGTHS.items():
                table.write(key, random_supervision(rng, frames, pdfs=2))
        indexes = np.array([[0, t, 0] for t in range(4)], np.int32)
        with TableWriter("ark:logs.ark", "matrix") as table:
            for key, frames in LENGTHS.items():
                table.write(key, rng.normal(size=(frames, 4)).astype(np.float32))
        with TableWriter("ark:egs.ark", "chain_example") as table:
            output = NnetChainSupervision("output", indexes, random_supervision(rng, 4, pdfs=2))
            features = rng.normal(size=(4, 2)).astype(np.float32)
            table.write("eg", NnetChainExample([NnetIo("input", indexes, features)], [output]))
    return path


def done(case: Case, data: bytes) -> tuple[int, str, list[bytes]]:
    """What a program does with an FST: the exit code, the last line, the files."""
    program, names = case
    Path("x.fst").write_bytes(data)
    Path("x.ark").write_bytes(b"a " + data)
    Path("fsts/default.den.fst").write_bytes(data)
    arguments, made = list(OPTIONS.get(program, ())), []
    for place, name in enumerate(names):
        if _is_fst(name) and name not in GIVEN:
            arguments.append("ark:x.ark" if "rspecifier" in name else "x.fst")
        elif name in GIVEN:
            arguments.append(GIVEN[name])
        else:
            assert re.search("out|wspecifier", name), f"{program}: what stands for {name}?"
            made.append(Path(f"made{place}"))
            arguments.append(f"ark:made{place}" if "wspecifier" in name else f"made{place}")
    for path in made:
        path.unlink(missing_ok=True)
    code, _, told = call_main(program, *arguments)
    files = [path.read_bytes() for path in made if path.exists()]
    return code, _TIME.sub("", told.splitlines()[-1]), files


@pytest.mark.parametrize("case", cases(), ids=lambda case: case[0])
def test_a_program_takes_every_type(case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    known: dict[bytes, tuple[int, str, list[bytes]]] = {}
    for form in FORMS:
        data, vector = samples(form)
        if vector not in known:
            known[vector] = done(case, vector)
        assert done(case, data) == known[vector], form
    results = {(code, told) for code, told, _ in known.values()}
    if case[0] in REFUSED:
        assert results == {(1, REFUSED[case[0]])}
    else:
        assert any(code == 0 for code, _ in results)
    # It reads the FST: where that is cut, it fails, and says in which file.
    code, told, files = done(case, samples("vector")[0][:-3])
    assert code == 1 and re.search(r"(x|default\.den)\.(fst|ark)", told), told


def _opened(path: Path) -> object:
    found = opscope.open(path)
    return found.kind, found.facts, found.unusual


def _recognized(path: Path) -> object:
    """The static graph of a recognizer's folder."""
    path.rename(path.parent / "HCLG.fst")
    (path.parent / "words.txt").write_text("".join(f"w{label} {label}\n" for label in range(6)))
    try:
        graph = load_graph(path.parent, keep=False).graph
    except OpscopeError as error:
        return str(error)
    return graph.fst.start, graph.fst.arcs.tolist(), graph.fst.final.tolist()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("read", [_opened, _recognized])
def test_folders_and_the_library_take_every_type(
    read: Callable[[Path], object], form: str, tmp_path: Path
) -> None:
    found = []
    for name, data in zip(("one", "other"), samples(form), strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.fst").write_bytes(data)
        found.append(read(tmp_path / name / "x.fst"))
    assert found[0] == found[1] and not isinstance(found[0], str)
