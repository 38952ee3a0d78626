"""`--root DIR` on the command line: for each kind of file that names files, the ways out of DIR."""

from __future__ import annotations

import contextlib
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import opscope
from kaldi_models import call_main, write_models
from opscope.cntk.readers.base.htk_files import write_htk
from opscope.kaldi.tables.tables import TableWriter

CTF = "".join(f"|x {n % 3} {n % 2} |y {1 - n % 2} {n % 2}\n" for n in range(20))
NETWORK = """x = Input {2} ; y = Input {2}
    z = ParameterTensor {(2:2), INIT} * x
    ce = CrossEntropyWithSoftmax (y, z, tag = 'criterion') ; out = Pass (z, tag = 'output')"""
TRAIN = f"""command = Train ; deviceId = -1 ; TOP
Train = [ action = train ; modelPath = "MODEL" ; makeMode = false
  reader = [ readerType = "CNTKTextFormatReader" ; file = "DATA" ; randomize = false
    input = [ x = [ dim = 2 ; format = "dense" ] ; y = [ dim = 2 ; format = "dense" ] ] ]
  BrainScriptNetworkBuilder = {{ {NETWORK} }}
  SGD = [ maxEpochs = 1 ; minibatchSize = 10 ; learningRatesPerSample = 0.1 ] ]
"""
DEFAULTS = {"TOP": "", "MODEL": "m.dnn", "DATA": "data.ctf", "INIT": "init = 'uniform'"}
HTK = """reader = [ readerType = "HTKMLFReader" ; readMethod = "rollingWindow" ; randomize = "none"
    x = [ dim = 2 ; scpFile = "list.scp" ]
    y = [ mlfFile = "a.mlf" ; labelMappingFile = "states" ; labelDim = 2 ] ]"""
IMAGES = """reader = [ readerType = "ImageReader" ; file = "map.txt" ; randomize = none
    x = [ width = 2 ; height = 2 ; channels = 3 ] ; y = [ labelDim = 2 ] ]"""
TABLE = """command = Map
Map = [ action = "createLabelMap" ; minibatchSize = 2 ; section = "Train" ]
Train = [ reader = [ readerType = "UCIFastReader" ; file = "data.txt"
    features = [ dim = 1 ; start = 1 ]
    labels = [ start = 0 ; dim = 1 ; labelType = "category" ; labelDim = 2
        labelMappingFile = "PATHnew.map" ] ] ]
"""


def read_by(reader: str, dim: int = 2) -> str:
    """The config with another reader in place of its own, which begins in line 3."""
    head, _, rest = trained().partition("  reader = ")
    rest = rest.partition("  BrainScript")[2].replace("x = Input {2}", f"x = Input {{{dim}}}")
    return f"{head}  {reader}\n  BrainScript{rest.replace('(2:2)', f'(2:{dim})')}"


EDIT = 'command = E\nE = [ action = edit ; editPath = "e.mel" ]'
PLOT = "command = P\nP = [ action = plot ;"


def trained(**parts: str) -> str:
    text = TRAIN
    for name, part in (DEFAULTS | parts).items():
        text = text.replace(name, part)
    return text


# kind: what goes to which file, with PATH for a path of `part`; the command; who is named
CONFIG = ["cntk", "configFile=t.cntk"]
KINDS: dict[str, tuple[dict[str, str], list[str], str]] = {
    "scp": (
        {"list.scp": "utt PATHfeats.ark:4\n"},
        ["nnet3-compute", "line.raw", "scp:list.scp", "ark:o.ark"],
        "list.scp:1: utt: ",
    ),
    "permissive scp": (
        {"list.scp": "utt PATHfeats.ark:4\n"},
        ["nnet3-compute", "line.raw", "p,scp:list.scp", "ark:o.ark"],
        "list.scp:1: utt: ",
    ),
    "random scp": (
        {"list.scp": "utt PATHvec.ark:4\n"},
        ["nnet3-compute", "--ivectors=p,scp:list.scp", "ivec.raw", "ark:feats.ark", "ark:o.ark"],
        "list.scp:1: utt: ",
    ),
    "scp to write": (
        {"list.scp": "utt PATHnew.mat\n"},
        ["nnet3-compute", "line.raw", "ark:feats.ark", "scp:list.scp"],
        "list.scp:1: utt: ",
    ),
    "options": (
        {"more.conf": "--ivectors=ark:PATHvec.ark\n"},
        ["nnet3-compute", "--config=more.conf", "ivec.raw", "ark:feats.ark", "ark:o.ark"],
        "vec.ark",
    ),
    "nnet3 config": (
        {
            "n.config": "input-node name=input dim=2\n"
            "component name=a type=FixedAffineComponent matrix=PATHfixed.mat\n"
            "component-node name=a component=a input=input\noutput-node name=output input=a\n"
        },
        ["nnet3-init", "n.config", "o.raw"],
        "n.config:2: ",
    ),
    "include": ({"t.cntk": "include=PATHrest.cntk\n"}, CONFIG, "t.cntk:1:"),
    "data": ({"t.cntk": trained(DATA="PATHdata.ctf")}, CONFIG, "t.cntk:3:"),
    "initial values": (
        {"t.cntk": trained(INIT="init = 'fromFile', initFromFilePath = 'PATHw.txt'")},
        CONFIG,
        "t.cntk:6:",
    ),
    "model to write": ({"t.cntk": trained(MODEL="PATHnew.dnn")}, CONFIG, "t.cntk:2:"),
    "model": (
        {"t.cntk": f'{PLOT} modelPath = "PATHold.dnn" ; outputDotFile = "o.dot" ]'},
        CONFIG,
        "t.cntk:2:",
    ),
    "picture": (
        {"t.cntk": f'{PLOT} modelPath = "old.dnn" ; outputDotFile = "PATHn.dot" ]'},
        CONFIG,
        "t.cntk:2:",
    ),
    "log": ({"t.cntk": trained(TOP='stderr = "PATHnew.log"')}, CONFIG, "new.log"),
    "done": ({"t.cntk": trained(TOP='doneFile = "PATHnew.done"')}, CONFIG, "t.cntk:1:"),
    "values": (
        {
            "t.cntk": trained()
            .replace("action = train", 'action = write ; outputPath = "PATHnew"')
            .replace('"m.dnn"', '"old.dnn"')
            .replace("BrainScriptNetworkBuilder", "unused")
        },
        CONFIG,
        "t.cntk:2:",
    ),
    "script": ({"t.cntk": read_by(HTK), "list.scp": "u=PATHu.fea[0,1]\n"}, CONFIG, "list.scp:1: "),
    "list": ({"t.cntk": read_by(HTK.replace("list.scp", "PATHok.scp"))}, CONFIG, "t.cntk:4:"),
    "labels": (
        {"t.cntk": read_by(HTK.replace("a.mlf", "PATHa.mlf")), "list.scp": "u=u.fea\n"},
        CONFIG,
        "t.cntk:5:",
    ),
    "states": (
        {"t.cntk": read_by(HTK.replace("states", "PATHstates")), "list.scp": "u=u.fea\n"},
        CONFIG,
        "t.cntk:5:",
    ),
    "label map": ({"t.cntk": TABLE}, CONFIG, "t.cntk:6:"),
    "images": ({"t.cntk": read_by(IMAGES, 12), "map.txt": "PATHi.png\t1\n"}, CONFIG, "map.txt:1: "),
    "zipped images": (
        {"t.cntk": read_by(IMAGES, 12), "map.txt": "PATHi.zip@/i.png\t1\n"},
        CONFIG,
        "map.txt:1: ",
    ),
    "edit": (
        {"t.cntk": EDIT, "e.mel": "m=LoadModel(PATHold.dnn)\n"},
        CONFIG,
        "old.dnn",
    ),
    "edit to write": (
        {
            "t.cntk": EDIT,
            "e.mel": "m=LoadModel(old.dnn)\nSaveModel(m, PATHnew.dnn)\n",
        },
        CONFIG,
        "new.dnn",
    ),
    "revision": (
        {
            "t.cntk": EDIT,
            "e.mel": "m=LoadModel(old.dnn)\nReviseParameter(m.*, PATHw.txt)\nSaveModel(m, n.dnn)\n",
        },
        CONFIG,
        "w.txt",
    ),
}
WAYS = {"absolute": "ROOT/out/", "up": "../out/", "link": "linked/", "through": "sub/../../out/"}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """A folder with everything that the kinds name."""
    folder = tmp_path_factory.mktemp("files")
    with contextlib.chdir(folder):
        write_models()
        feats = np.arange(20, dtype=np.float32).reshape(5, 4)
        with TableWriter("ark:feats.ark", "matrix") as table:
            table.write("utt", feats)
        with TableWriter("ark:vec.ark", "vector") as table:
            table.write("utt", feats[0])
        Path("fixed.mat").write_text(" [ 1 2 3\n 4 5 6 ]\n")
        Path("ivec.config").write_text(
            "input-node name=input dim=4\ninput-node name=ivector dim=4\n"
            "output-node name=output input=Append(input, ReplaceIndex(ivector, t, 0))\n"
        )
        Path("line.config").write_text(
            "input-node name=input dim=4\noutput-node name=output input=input\n"
        )
        for net in ("ivec", "line"):
            assert call_main("nnet3-init", f"{net}.config", f"{net}.raw")[0] == 0
        Path("data.ctf").write_text(CTF)
        Path("w.txt").write_text("1 2\n3 4\n")
        Path("rest.cntk").write_text(trained())
        Path("old.cntk").write_text(trained(MODEL="old.dnn"))
        assert call_main("cntk", "configFile=old.cntk")[0] == 0
        write_htk(Path("u.fea"), np.zeros((2, 2), np.float32))
        Path("ok.scp").write_text("u=u.fea[0,1]\n")
        Path("a.mlf").write_text('#!MLF!#\n"u.lab"\n0 100000 a\n100000 200000 b\n.\n')
        Path("states").write_text("a\nb\n")
        Path("data.txt").write_text("x 1\ny 2\nx 3\n")
        image = pytest.importorskip("PIL.Image").fromarray(np.zeros((2, 2, 3), np.uint8))
        image.save("i.png")
        with zipfile.ZipFile("i.zip", "w") as archive:
            archive.write("i.png")
    return folder


@pytest.fixture
def folder(files, tmp_path, monkeypatch) -> Path:
    """Copies of that folder: `in`, which is the working folder, and `out`."""
    monkeypatch.delenv("OPSCOPE_ROOT", raising=False)
    for name in ("in", "out"):
        shutil.copytree(files, tmp_path / name)
    monkeypatch.chdir(tmp_path / "in")
    os.mkdir("sub")
    os.symlink("../out", "linked")
    return tmp_path


def write(kind: str, path: str) -> tuple[list[str], str]:
    files, words, named = KINDS[kind]
    for name, text in files.items():
        Path(name).write_text(text.replace("PATH", path))
    return words, named


@pytest.mark.parametrize("kind", KINDS)
def test_ways_out(kind, folder):
    before = {path.name: path.read_bytes() for path in (folder / "out").iterdir()}
    for way in WAYS.values():
        path = way.replace("ROOT", str(folder))
        words, named = write(kind, path)
        code, _, err = call_main("--root", ".", *words)
        assert code != 0 and "lies outside of" in err and repr(str(folder / "in")) in err, err
        assert named in err and path in err, err
        assert {p.name: p.read_bytes() for p in (folder / "out").iterdir()} == before


@pytest.mark.parametrize("kind", KINDS)
def test_good_paths(kind, folder):
    """The same files work inside, and outside where nothing confines them."""
    words, _ = write(kind, "")
    code, _, err = call_main(*words, "--root=.")
    assert code == 0, err
    words, _ = write(kind, f"{folder}/out/")
    code, _, err = call_main(*words)
    assert code == 0, err


def test_several_roots_and_the_switch(folder, monkeypatch):
    words, _ = write("data", "../out/")
    assert call_main(*words, "--root", ".", f"--root={folder}/out")[0] == 0
    monkeypatch.setenv("OPSCOPE_ROOT", ".")
    code, _, err = call_main(*words)
    assert code != 0 and "lies outside of" in err
    monkeypatch.setenv("OPSCOPE_ROOT", os.pathsep.join((".", "../out")))
    assert call_main(*words)[0] == 0
    assert call_main(*words, "--root=.")[0] != 0  # the option takes the switch's place


def test_what_is_typed_is_trusted(folder):
    """Files of the command line itself, whatever stands before and behind their names."""
    out = f"{folder}/out"
    words, _ = write("scp", "")
    for typed in (
        ["nnet3-copy", f"{out}/net.raw", f"{out}/copy.raw"],
        ["nnet3-compute", f"{out}/line.raw", "scp:list.scp", f"ark,scp:{out}/n.ark,{out}/n.scp"],
        ["nnet3-compute", f"--config={out}/empty", "line.raw", f"scp:{out}/typed.scp", "ark:o.ark"],
        ["cntk", f"configFile={out}/old.cntk", f"Train=[modelPath={out}/typed.dnn]"],
    ):
        Path(out, "empty").write_text("")
        Path(out, "typed.scp").write_text(f"utt {folder}/in/feats.ark:4\n")
        code, _, err = call_main("--root=.", *typed)
        assert code == 0, err
    assert Path(out, "typed.dnn").exists() and Path(out, "n.ark").exists()
    code, _, err = call_main("--root=.", "nnet3-compute", "line.raw", f"scp:{out}/n.scp", "ark:o")
    assert code != 0 and "lies outside of" in err  # what a typed list names is not typed


def test_nets_are_run_and_trained(folder):
    b = opscope.NetBuilder("n")
    x = b.input("x", [-1, 2])
    b.mean(b.fc(x, size=1, name="y"), name="loss")
    scope = opscope.Scope()
    b.initialize(scope)
    opscope.save(b, scope, "../out/n.pb")
    np.save("../out/x.npy", np.ones((4, 2), np.float32))
    np.savez("../out/d.npz", x=np.ones((4, 2), np.float32))
    run = ["run", "../out/n.pb", "--feed", "x=../out/x.npy", "--fetch", "loss", "--out", "o.npy"]
    assert call_main("--root=.", *run)[0] == 0
    train = ["train", "../out/n.pb", "--data", "../out/d.npz", "--optimizer", "sgd", "--lr", "0.1"]
    train += ["--epochs", "1", "--out", "../out/t.pb", "--root", "."]
    code, _, err = call_main(*train)
    assert code == 0, err
    os.mkdir("arrays")
    os.symlink("../../out/x.npy", "arrays/x.npy")
    code, _, err = call_main(*[word.replace("../out/d.npz", "arrays") for word in train])
    assert code != 0 and "lies outside of" in err  # the folder is typed; a link leads out of it


def test_the_option(folder):
    assert "--root" in call_main("--help")[1].decode()
    assert "--root" in call_main("nnet3-copy", "--help")[1].decode()
    code, _, err = call_main("nnet3-copy", "net.raw", "o.raw", "--root")
    assert code != 0 and "requires an argument" in err
    code, _, err = call_main("--root=absent", "nnet3-copy", "net.raw", "o.raw")
    assert code == 1 and "'absent': there is no such folder" in err
    Path("more.conf").write_text("--root=/\n")
    code, _, err = call_main("nnet3-copy", "--config=more.conf", "net.raw", "o.raw")
    assert code == 1 and "more.conf:1: invalid option --root=/" in err
