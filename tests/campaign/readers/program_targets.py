"""The campaign's command lines, of nnet3's programs and of `opscope`: a word a line of a file."""

from __future__ import annotations

import contextlib
import importlib
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from click.testing import CliRunner

import opscope
from chain_graphs import random_hmm
from kaldi_models import write_models
from opscope import NetBuilder, OpContext, Scope
from opscope.framework.base.errors import OpscopeError
from opscope.kaldi.files.kaldi_io import Writer
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.fst.files.fst_io import write_fst
from opscope.kaldi.tables.specifiers import ReadSpecifier, WriteSpecifier
from opscope.kaldi.tables.tables import TableWriter
from opscope.nnet3.programs import OWN, PROGRAMS
from opscope.nnet3.programs.base.program import KaldiCommand
from opscope.python_api.cli.main import main
from opscope.speech.programs import PROGRAMS as SPEECH_PROGRAMS

from ..inputs import Target
from .mutate import BYTES, TEXT, cut, line, splice, word
from .nnet3_targets import chain_example, example

LINES = (
    "nnet3-init --srand=3 net.config out.raw",
    "nnet3-init net.raw more.config out.raw",
    "nnet3-copy --edits=remove-orphans --learning-rate=0.1 --scale=0.5 --binary=false net.raw out",
    "nnet3-copy --edits-config=edits --prepare-for-test=true net.raw out",
    "nnet3-info --verbose=2 net.raw",
    "nnet3-am-copy --raw=true --convert-repeated-to-block net.mdl out.raw",
    "nnet3-am-copy --set-raw-nnet=net.raw --config=options net.mdl out.mdl",
    "nnet3-am-info net.mdl",
    "nnet3-am-init trans.mdl net.raw out.mdl",
    "nnet3-am-adjust-priors --prior-floor=1e-5 net.mdl priors.vec out.mdl",
    "nnet3-am-train-transitions two.mdl ark:ali.ark out.mdl",
    "copy-transition-model --binary=false net.mdl out.mdl",
    "nnet3-compute --frames-per-chunk=20 --apply-exp=true train.raw ark:feats3.ark ark,t:out.ark",
    "nnet3-compute --frame-subsampling-factor=2 train.raw scp:feats3.scp ark:o",
    "nnet3-compute-batch --frames-per-chunk=9 --minibatch-size=3 train.raw ark:feats3.ark ark:o",
    "nnet3-xvector-compute --chunk-size=4 --pad-input=true train.raw ark:feats3.ark ark:out.ark",
    "nnet3-xvector-compute-batched --chunk-size=5 --batch-size=2 train.raw ark:feats3.ark ark:out",
    "nnet3-compute-from-egs --apply-exp=true train.raw ark:egs.ark ark:out.ark",
    "nnet3-compile net.raw --frames 4 --sequences 2 --kaldi",
    "nnet3-compile train.raw 'input=-5:20 output=0:3 deriv' --no-optimize",
    "nnet3-get-egs --num-pdfs=5 --left-context=1 --num-frames=2 ark:feats.ark ark:post.ark ark:o",
    "nnet3-get-egs-dense-targets --num-targets=4 --num-frames=3 ark:feats.ark ark:feats.ark ark:o",
    "nnet3-get-egs-simple input=ark:feats3.ark output=ark:feats.ark ark:o",
    "nnet3-xvector-get-egs --num-pdfs=3 ranges ark:feats.ark ark:o1 ark:o2",
    "nnet3-copy-egs --frame=1 --left-context=0 --random=true ark:egs.ark ark:o1 ark:o2",
    "nnet3-copy-egs --keep-proportion=0.5 ark:egs.ark ark,scp:o,o.scp",
    "nnet3-merge-egs --minibatch-size=4=2/3=1:2,4 --measure-output-frames=false ark:egs.ark ark:o",
    "nnet3-shuffle-egs --buffer-size=2 --srand=1 ark:egs.ark ark:o",
    "nnet3-subset-egs --n=1 ark:egs.ark ark:o",
    "nnet3-egs-augment-image --num-channels=1 --horizontal-flip-prob=0.5 ark:egs.ark ark:o",
    "nnet3-train --max-param-change=1 --momentum=0.5 --write-cache=cache train.raw ark:egs.ark o",
    "nnet3-train --read-cache=cache --optimization.min-deriv-time=-2 train.raw ark:egs.ark o",
    "nnet3-compute-prob --compute-accuracy=false train.raw ark:egs.ark",
    "nnet3-average --weights=0.3:0.7 net.raw net.raw out.raw",
    "nnet3-combine --max-objective-evaluations=3 train.raw train.raw ark:egs.ark out.raw",
    "nnet3-show-progress --use-gpu=no net.raw net.raw",
    "nnet3-acc-lda-stats --rand-prune=0.5 lda.raw ark:random.ark lda",
    "sum-lda-accs out lda lda",
    "nnet-get-feature-transform --dim=2 --within-class-factor=0.1 --remove-offset=true out lda",
    "nnet3-chain-copy-egs --frame-shift=1 ark:cegs.ark ark:o",
    "nnet3-chain-merge-egs --minibatch-size=1:2 --compress=false ark:cegs.ark ark:o",
    "nnet3-chain-normalize-egs den.fst ark:cegs.ark ark:o",
    "nnet3-chain-shuffle-egs ark:cegs.ark ark:o",
    "nnet3-xconfig-to-config --xconfig-file net.xconfig --config-dir out",
    "matrix-sum --binary=false --scale1=2 ark:feats.ark ark:feats.ark ark:o",
    "matrix-sum-rows ark:feats.ark ark:o",
    "apply-cmvn-sliding --cmn-window=5 --min-cmn-window=3 --center=true ark:feats.ark ark:o",
    "splice-feats --left-context=2 --right-context=1 ark:feats.ark ark:o",
    "transform-feats ark:feats.ark ark:feats.ark ark:o",
    "vector-sum priors.vec priors.vec out.vec",
)
OWN_LINES = (
    "run net.pb --feed x=x.npy --fetch loss --feed t=t.npy --seed 3 --device cpu",
    "run net.pb --feed x=data.npz:x --fetch loss --feed t=t.npy --out out.npy --train-phase",
    "show net.pb",
    "summary net.pb",
    "verify net.raw",
    "show net.config",
    "ops relu",
    "version",
    "train net.pb --data data.npz --epochs 1 --batch 2 --out out",
    "train net.pb --data folder --hold-out 0.5 --out out --epochs 1 --feed x=x --feed t=t",
)
_SPECIFIERS = (
    b"ark,s,cs,p:feats.ark",
    b"scp,o,ns,ncs,np:feats.scp",
    b"ark,scp,t,f:a.ark,a.scp",
    b"scp:ark:x",
    b"ark,t:-",
    b"ark:feats.ark:12[0:2,1]",
    b"ark:gunzip -c x|",
)
_AFFINE = """input-node name=input dim=3
component name=a type=AffineComponent input-dim=3 output-dim={}
component-node name=a component=a input=input
output-node name=output input=a
"""
_CONFIG = b"--scale=0.5 # a factor\n--edits=remove-orphans\n\n--srand=7\n--verbose=1\n"


def _net() -> tuple[NetBuilder, Scope]:
    b, scope = NetBuilder("n"), Scope()
    x, t = b.input("x", [-1, 4]), b.input("t", [-1], dtype="int64")
    b.backward_from(b.mean(b.softmax_cross_entropy(b.fc(x, 3), t), name="loss"))
    b.add_optimization(0.01, "sgd")
    b.initialize(scope, OpContext(seed=1))
    return b, scope


def _do(command: str) -> None:
    """A program that goes well.

    Raises:
        OpscopeError: it did not.
    """
    result = CliRunner().invoke(main, command.split())
    if result.exit_code:
        raise OpscopeError(result.output)


def prepare(folder: Path, more: Callable[[], None] = lambda: None) -> None:
    """The files that command lines name, in a folder; a second one holds them for ever.

    Args:
        more: writes further ones to the current folder.
    """
    whole = folder / "whole"
    whole.mkdir()
    with contextlib.chdir(whole):
        write_models()
        Path("train.config").write_text(_AFFINE.format(5))
        Path("two.config").write_text(_AFFINE.format(2))
        Path("lda.config").write_text(
            "input-node name=input dim=3\noutput-node name=output input=input\n"
        )
        for name in ("train", "two", "lda"):
            _do(f"nnet3-init {name}.config {name}.raw")
        _do("nnet3-am-init net.mdl two.raw two.mdl")
        Path("options").write_bytes(_CONFIG)
        Path("edits").write_text("set-learning-rate name=* learning-rate=0.1\n")
        Path("ranges").write_text("k0 0 0 0 3 1\nk1 1 1 0 4 2\n")
        Path("net.xconfig").write_text("input dim=4 name=input\noutput-layer name=output dim=2\n")
        matrix = np.arange(32, dtype=np.float32).reshape(8, 4)
        posterior = Posterior.from_frames([[(t % 5, 1.0)] for t in range(8)])
        tables = {
            "ark,scp:feats.ark,feats.scp": ("matrix", matrix),
            "ark,scp:feats3.ark,feats3.scp": ("matrix", matrix[:, :3]),
            "ark:post.ark": ("posterior", posterior),
            "ark:ali.ark": ("int_vector", [1, 2, 3, 4]),
            "ark:egs.ark": ("example", example()),
            "ark:cegs.ark": ("chain_example", chain_example()),
        }
        for name, (kind, value) in tables.items():
            with TableWriter(name, kind) as table:
                table.write("k0", value)
                table.write("k1", value)
        Path("priors.vec").write_bytes(b" [ 0.1 0.2 0.3 0.2 0.2 ]\n")
        Path("trans.mdl").write_bytes(Path("net.mdl").read_bytes())
        writer = Writer(True)
        write_fst(random_hmm(np.random.default_rng(0)), writer)
        Path("den.fst").write_bytes(writer.getvalue()[2:])
        Path("folder").mkdir()
        arrays = {"x": np.ones((4, 4), np.float32), "t": np.zeros(4, np.int64)}
        np.savez("data.npz", **arrays)
        for name, array in arrays.items():
            np.save(f"{name}.npy", array)
            np.save(f"folder/{name}.npy", array)
        opscope.save(*_net(), "net")
        with TableWriter("ark:random.ark", "example") as table:
            for seed in range(8):
                table.write(f"k{seed}", example(seed))
        _do("nnet3-train --write-cache=cache train.raw ark:egs.ark train.out")
        _do("nnet3-acc-lda-stats lda.raw ark:random.ark lda")
        more()
    shutil.copytree(whole, folder / "work")  # with the times of the files


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[None]:
    """Inside a folder whose files are afterwards as they were before."""
    whole, work = folder / "whole", folder / "work"
    before = {path: _state(path) for path in work.rglob("*")}
    try:
        with contextlib.chdir(work):
            yield
    finally:
        for path in sorted(work.rglob("*"), reverse=True):
            if path not in before:
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for path, state in before.items():
            if not path.exists() or _state(path) != state:
                path.unlink(missing_ok=True)
                shutil.copy2(whole / path.relative_to(work), path)


def _state(path: Path) -> tuple[int, int]:
    """What changes when a file is written; a folder is known by what is in it."""
    state = path.lstat()
    return (0, 0) if path.is_dir() else (state.st_mtime_ns, state.st_size)


def _words(path: Path) -> list[str]:
    """The words of a command line; what is no word of one, as a NUL, is left out."""
    text = path.read_bytes().decode("utf-8", "surrogateescape").replace("\0", "")
    return text.split("\n")


def _seeds(lines: Sequence[str]) -> Callable[[Path], Sequence[bytes]]:
    def seeds(folder: Path) -> Sequence[bytes]:
        prepare(folder)
        return [one_a_line(text) for text in lines]

    return seeds


def one_a_line(text: str) -> bytes:
    """The words of a line of a shell; quotes hold those with spaces together."""
    return "\n".join(
        part if number % 2 else part.strip().replace(" ", "\n")
        for number, part in enumerate(text.split("'"))
        if part
    ).encode()


def run_words(path: Path) -> None:
    """Run the command line of a file."""
    with workplace(path.parent):
        run_line(_words(path))


def run_line(words: list[str]) -> None:
    """Run a command line here.

    Raises:
        OpscopeError: it ended with a status other than 0.
    """
    result = CliRunner().invoke(main, words)
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        raise error
    if result.exit_code:
        raise OpscopeError(f"it ended with {result.exit_code}")


@lru_cache
def command_of(name: str) -> KaldiCommand:
    floor, table = ("speech", SPEECH_PROGRAMS) if name in SPEECH_PROGRAMS else ("nnet3", PROGRAMS)
    module = importlib.import_module(f"opscope.{floor}.programs.{table[name][0]}")
    return getattr(module, name.replace("-", "_"))


KALDI = [*(name for name in PROGRAMS if name not in OWN), *SPEECH_PROGRAMS]


def _options(folder: Path) -> Sequence[bytes]:
    """Every option of every program, with its default."""
    found = []
    for name in KALDI:
        rows = [f"--{option.name}={option.default}" for option in command_of(name).options.values()]
        found.append("\n".join([name, *rows, "in", "out"]).encode())
    return found


def _parse(path: Path) -> None:
    name, *arguments = _words(path)
    command = command_of(name if name in KALDI else KALDI[0])
    command._parse(arguments)
    command.usage()


def _read_config(path: Path) -> None:
    command_of("nnet3-copy")._parse([f"--config={path}"])


def _specifier(path: Path) -> None:
    """One for reading; or else one for writing."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    try:
        ReadSpecifier.parse(text)
    except OpscopeError:
        WriteSpecifier.parse(text)


def number(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Another value of an option, or another file."""
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    name, equals, _ = lines[place].partition(b"=")
    values = (b"0", b"-1", b"1", b"2", b"1e9", b"2147483647", b"nan", b"inf", b"true", b"x", b"")
    files = (b"net.raw", b"net.mdl", b"egs.ark", b"options", b"net.pb", b"ark:egs.ark", b"folder")
    lines[place] = name + equals + rng.choice((*values, *files)) if equals else rng.choice(files)
    return b"\n".join(lines)


WORDS = (number, number, line, word, splice)

TARGETS = (
    Target("programs", ".args", _seeds(LINES), run_words, WORDS),
    Target("commands", ".args", _seeds(OWN_LINES), run_words, WORDS),
    Target("program options", ".args", _options, _parse, (*TEXT, number)),
    Target("options file", ".config", lambda _: [_CONFIG], _read_config, (*TEXT, *BYTES)),
    Target("table specifier", ".txt", lambda _: _SPECIFIERS, _specifier, (*TEXT, cut)),
)
