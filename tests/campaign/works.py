"""Work that reads files and writes some, for the campaigns of faults: commands and functions."""

from __future__ import annotations

import contextlib
import hashlib
import io
import multiprocessing
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.testing  # while the library can still be read

import opscope
from kaldi_models import one_state_model
from opscope import NetBuilder, OpContext, Scope
from opscope.framework.files.checkpoint import read_checkpoint, write_checkpoint
from opscope.framework.files.saved import persistent_values
from opscope.framework.fusion.compiled import library_files
from opscope.framework.runtime.initialize import initialize
from opscope.framework.runtime.net import Net
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.network.nnet import Nnet
from opscope.python_api.cli.main import main
from small_nets import classifier, data

from .trainings import CNTK_CONFIG, TRAININGS, Training, write_points

Contents = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """Something that reads files of the current folder and writes others there.

    Attributes:
        prepare: writes what is read, for the n-th contents.
        do: does the work; may raise an OpscopeError, or SystemExit as commands do.
        result: what was written, by name, where it is there; raises where it cannot be read.
        goes_on: it goes on where it was stopped, and its end must be as if it never was.
        always: it succeeds whatever becomes of its files.
    """

    name: str
    prepare: Callable[[int], None]
    do: Callable[[], object]
    result: Callable[[], Contents]
    goes_on: bool = False
    always: bool = False


def files(*patterns: str) -> Callable[[], Contents]:
    """Digests of the files of the current folder that fit."""

    def found() -> Contents:
        paths = sorted({path for pattern in patterns for path in Path().glob(pattern)})
        return {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in paths
            if path.is_file() and not path.name.startswith(".")
        }

    return found


def call(*words: str) -> None:
    """Run the command line; what it prints is dropped, unless it fails.

    Raises:
        ChildProcessError: it failed.
    """
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            main(list(words), prog_name="opscope")
        except SystemExit as done:
            if done.code:
                raise ChildProcessError(f"{words}: {told.getvalue()}") from None


def command(*words: str) -> Callable[[], object]:
    return lambda: main(list(words), prog_name="opscope")


# opscope's own files


def _net(value: int) -> tuple[NetBuilder, Scope]:
    b, scope = NetBuilder("n"), Scope()
    b.mul(b.input("x", [-1, 500]), b.parameter("w", [500], "zeros"), name="y")
    b.initialize(scope)
    scope.var("w").bind(np.full(500, value, np.float32))
    return b, scope


_NOTED = [0]
"""The value that is written: what is prepared where nothing is read."""


def _note(value: int) -> None:
    _NOTED[0] = value


def _noted() -> int:
    return _NOTED[0]


def _save() -> None:
    opscope.save(*_net(_noted()), "net")


def _saved() -> Contents:
    if not Path("net.pb").exists():
        return {}
    found = opscope.load("net").scope.numpy("w")
    assert (found == found[0]).all()
    return {"w": float(found[0])}


def _write_checkpoint() -> None:
    b, scope = _net(_noted())
    write_checkpoint("run", b.op_list, persistent_values(b.op_list, scope), {"epoch": _noted()})


def _checkpoint() -> Contents:
    if not Path("run.checkpoint").exists():
        return {}
    found = read_checkpoint("run")
    assert (found.values["w"] == found.state["epoch"]).all()
    return {"epoch": found.state["epoch"]}


def _write_table() -> None:
    value = _noted()
    with TableWriter("ark,scp:t.ark,t.scp", "matrix") as table:
        for key in ("a", "b"):
            table.write(key, np.full((value % 7 + 1 + (key == "b"), 9), value, np.float32))


def _table() -> Contents:
    if not Path("t.ark").exists():
        return {}
    archive = dict(read_table("ark:t.ark", "matrix"))
    (value,) = {float(value) for found in archive.values() for value in np.unique(found)}
    if Path("t.scp").exists():
        script = dict(read_table("scp:t.scp", "matrix"))
        assert script.keys() == archive.keys()
        assert all(np.array_equal(script[key], archive[key]) for key in archive)
    return {"table": value}


def _prepare_run(value: int) -> None:
    opscope.save(*_net(value), "in")
    np.save("x.npy", np.full((3, 500), value, np.float32))


def _prepare_train(value: int) -> None:
    b, scope = classifier(), Scope()
    initialize(b.desc, scope, OpContext(seed=value))
    opscope.save(b, scope, "in")
    np.savez("data.npz", **data(seed=value))


def _trained() -> Contents:
    found = files("history.csv", "curves.png")()
    found.pop("history.csv", None)  # tells seconds
    if Path("out.pb").exists():
        loaded = opscope.load("out")
        names = sorted(var.name for var in loaded.net.op_list.vars if var.kind)
        values = b"".join(loaded.scope.numpy(n).tobytes() for n in names if loaded.scope.find(n))
        found["out"] = hashlib.sha256(values).hexdigest()
    return found


# The kernel cache


def _run_fused() -> None:
    """A chain that is compiled, with the cache in this folder; its numbers are written down."""
    value = _noted()
    os.environ["OPSCOPE_CACHE"] = str(Path("cache").absolute())
    b, scope = NetBuilder("n"), Scope()
    y = b.mul(b.tanh(b.add(b.input("x", [-1, 500]), b.input("z", [-1, 500]))), b.input("x2", [1]))
    scope.var("x").set(np.full((40, 500), value, np.float32))
    scope.var("z").set(np.full((40, 500), 0.5, np.float32))
    scope.var("x2").set(np.full(1, 2, np.float32))
    Net.create(b.op_list).run(scope, OpContext(live_out=[y.name]))
    found = scope.numpy(y.name)
    np.testing.assert_allclose(found, 2 * np.tanh(value + 0.5), rtol=1e-5)


def _run_twice() -> None:
    """Another process compiles the same at the same time."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _run_fused()
            code = 0
        finally:
            os._exit(code)
    _run_fused()
    assert os.waitpid(child, 0)[1] == 0


def _fork_amid_threads() -> None:
    """Threads run nets while processes begin that run some too, as loaders of data do."""
    _run_fused()  # a fork in the middle of an import is beyond what Python can take
    stop, failed = threading.Event(), []

    def go_on() -> None:
        try:
            while not stop.is_set():
                _run_fused()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=go_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            other = multiprocessing.get_context("fork").Process(target=_run_fused)
            other.start()
            other.join()
            assert other.exitcode == 0, other.exitcode
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed, failed


def _cached() -> Contents:
    """Nothing that matters but that all libraries that would be used are whole."""
    for path in Path("cache").absolute().glob("*.so"):
        library_files.find(path.parent, path.stem)
    return {}


# nnet3's programs

NNET3_CONFIG = """input-node name=input dim=4
component name=a type=NaturalGradientAffineComponent input-dim=12 output-dim=16 max-change=0.75
component name=r type=RectifiedLinearComponent dim=16 self-repair-scale=1e-05
component name=b type=NaturalGradientAffineComponent input-dim=16 output-dim=3
component name=s type=LogSoftmaxComponent dim=3
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=r component=r input=a
component-node name=b component=b input=r
component-node name=s component=s input=b
output-node name=output input=s
"""
TRANSITIONS = one_state_model(1, leaves=-0.5)
_GET = ("nnet3-get-egs", "--num-pdfs=3", "--left-context=1", "--right-context=1", "--num-frames=8")


def _prepare_nnet3(value: int) -> None:
    """Networks, features and examples."""
    rng = np.random.default_rng(value)
    with (
        TableWriter("ark:feats.ark", "matrix") as feats,
        TableWriter("ark:post.ark", "posterior") as posts,
    ):
        for number in range(4):
            labels = rng.integers(0, 3, 23)
            features = np.eye(3, 4)[labels] * 3 + rng.normal(size=(23, 4))
            feats.write(f"u{number}", features.astype(np.float32))
            posts.write(f"u{number}", Posterior.from_frames([[(k, 1.0)] for k in labels]))
    Path("net.config").write_text(NNET3_CONFIG)
    Path("net.xconfig").write_text(
        f"input dim=4 name=input\nrelu-layer name=a dim={8 + value}\noutput-layer name=output dim=3"
    )
    for number in (0, 1):
        Nnet.from_config_text(NNET3_CONFIG, 2 * value + number).write(f"{number}.raw")
    one = NNET3_CONFIG.replace("output-dim=3", "output-dim=1").replace("m=3\ncomp", "m=1\ncomp")
    Nnet.from_config_text(one, value).write("one.raw")
    Path("transitions").write_text(TRANSITIONS)
    call("nnet3-am-init", "transitions", "one.raw", "one.mdl")
    call(*_GET, "ark:feats.ark", "ark:post.ark", "ark:egs.ark")
    call("nnet3-merge-egs", "--minibatch-size=8,1:4", "ark:egs.ark", "ark:merged.ark")


def _program(*words: str, out: tuple[str, ...] = ("new*",)) -> Work:
    return Work(words[0], _prepare_nnet3, command(*words), files(*out))


NNET3_PROGRAMS = (
    _program("nnet3-init", "--srand=1", "net.config", "new.raw"),
    _program("nnet3-copy", "--learning-rate=0.1", "0.raw", "new.raw"),
    _program("nnet3-am-copy", "--binary=false", "one.mdl", "new.mdl"),
    _program("nnet3-am-init", "transitions", "one.raw", "new.mdl"),
    _program("nnet3-average", "0.raw", "1.raw", "new.raw"),
    _program("nnet3-compute", "0.raw", "ark:feats.ark", "ark,t:new.ark"),
    _program(*_GET, "ark:feats.ark", "ark:post.ark", "ark:new.ark"),
    _program("nnet3-copy-egs", "--random", "--srand=1", "ark:egs.ark", "ark:new1", "ark:new2"),
    _program("nnet3-shuffle-egs", "--srand=1", "ark:egs.ark", "ark:new.ark"),
    _program("nnet3-merge-egs", "--minibatch-size=4", "ark:egs.ark", "ark:new.ark"),
    _program("nnet3-acc-lda-stats", "0.raw", "ark:merged.ark", "new.acc"),
    _program("copy-transition-model", "one.mdl", "new.trans"),
    _program("nnet3-xconfig-to-config", "--xconfig-file=net.xconfig", "--config-dir=new",
             out=("new/*",)),
    _program("nnet3-train", "--srand=1", "--write-cache=new.cache", "0.raw", "ark:merged.ark",
             "new.raw"),
)  # fmt: skip

# CNTK's actions


def _cntk_config(command: str, text: str) -> None:
    head = f"command = {command} ; precision = float ; modelPath = m.dnn ; deviceId = -1\n"
    reader = CNTK_CONFIG[CNTK_CONFIG.index("    reader") : CNTK_CONFIG.index("    BrainScript")]
    Path(f"{command}.cntk").write_text(f"{head}{command} = [\n{text}\n{reader} ]\n")


_ACTIONS = {
    "Write": "action = write ; outputPath = new/o ; outputNodeNames = z:h",
    "Plot": "action = plot ; outputDotFile = new.dot",
    "Dump": "action = dumpNode ; outputFile = new.txt",
    "Divide": "action = SVD ; outputmodelPath = new.dnn ; NodeNameRegex = 'h.*' ; KeepRatio = 0.5",
    "Statistics": "action = bnstat ; newModelPath = new.dnn ; minibatchSize = 20",
}


def _prepare_cntk(value: int) -> None:
    write_points(value)
    Path("train.cntk").write_text(CNTK_CONFIG.replace("maxEpochs = 20", "maxEpochs = 1"))
    call("cntk", "configFile=train.cntk", f"Train=[randomSeed={value}]", "makeMode=false")
    for name, text in _ACTIONS.items():
        _cntk_config(name, text)


CNTK_ACTIONS = tuple(
    Work(
        f"cntk {text.split()[2]}",
        _prepare_cntk,
        command("cntk", f"configFile={name}.cntk"),
        files("new*", "new/*"),
    )
    for name, text in _ACTIONS.items()
)


def _end(training: Training) -> Contents:
    found = training.result()
    if isinstance(found, dict):
        return {name: array.tobytes() for name, array in found.items()}
    return {"model": found}


OWN_WORK = (
    Work("save", _note, _save, _saved),
    Work("checkpoint", _note, _write_checkpoint, _checkpoint),
    Work("archive and script", _note, _write_table, _table),
    Work(
        "opscope run",
        _prepare_run,
        command("run", "in", "--feed", "x=x.npy", "--fetch", "y", "--out", "y.npy"),
        files("y.npy"),
    ),
    Work(
        "opscope show",
        _prepare_run,
        command("show", "in", "--svg", "in.svg"),
        files("in.svg"),
    ),
    Work(
        "opscope train",
        _prepare_train,
        command("train", "in", "--data", "data.npz", "--out", "out", "--epochs", "3", "--csv",
                "history.csv", "--plot", "curves.png", "--quiet", "--checkpoint=run", "--resume"),
        _trained,
        goes_on=True,
    ),
    Work("kernel cache", _note, _run_fused, _cached, always=True),
    Work("kernel cache, two processes", _note, _run_twice, _cached, always=True),
    Work("forks amid threads", _note, _fork_amid_threads, _cached, always=True),
)  # fmt: skip

TRAINED = tuple(
    Work(
        one.name,
        lambda _, one=one: one.prepare(),
        one.work,
        lambda one=one: _end(one),
        goes_on=True,
    )
    for one in TRAININGS
)

WORKS = (*OWN_WORK, *NNET3_PROGRAMS, *CNTK_ACTIONS, *TRAINED)
