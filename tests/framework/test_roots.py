"""Files under roots: what is refused, whatever reads or writes it, and what is not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from opscope.cntk.actions.words import count_words
from opscope.cntk.config.files import load_config
from opscope.cntk.lattices.archive import LatticeArchive
from opscope.cntk.lattices.hmms import Hmms
from opscope.cntk.lattices.htk_text import read_htk_lattice
from opscope.cntk.models.checkpoint import read_checkpoint
from opscope.cntk.models.open_model import open_model
from opscope.cntk.models.v1 import read_model
from opscope.cntk.network.dialect import to_desc
from opscope.cntk.network.nodes.initial_values import read_matrix
from opscope.cntk.programs.files import networks_of
from opscope.cntk.readers.base.htk_files import HtkFile, read_script
from opscope.cntk.readers.base.section_file import read_sections
from opscope.cntk.readers.base.steady_file import SteadyFile
from opscope.cntk.readers.base.words import read_lines
from opscope.cntk.readers.htk.mlf import read_states
from opscope.cntk.readers.image.transforms import read_opencv
from opscope.cntk.readers.uci.format import Columns, read_table
from opscope.cntk.run.value_format import read_labels
from opscope.framework.base import atomic
from opscope.framework.base.untrusted import roots, values
from opscope.framework.files.array_files import read_array
from opscope.framework.files.loading import load_parameters
from opscope.framework.files.tensor_file import TensorFile
from opscope.framework.ir.messages import serialize_net
from opscope.nnet3.components.base.initial import read_matrix_file, read_vector_file
from opscope.nnet3.language.config import read_config_text
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.tables.streams import Files, check_there, open_output, open_reader, open_stream
from opscope.nnet3.tables.windows import WindowedFile
from opscope.nnet3.xconfig.lines import split_lines
from opscope.python_api.cli.main import main


def _written(path: str) -> None:
    with open_output(path) as file:
        file.write(b"x")


def _streamed(path: str) -> None:
    with open_stream(path) as file:
        file.read()


READERS: dict[str, Callable[[str], object]] = {
    "read_file": values.read_file,
    "open_file": lambda path: values.open_file(path).close(),
    "read_text": values.read_text,
    "open_handle": lambda path: os.close(values.open_handle(path)),
    "net": opscope.load,
    "tensors": TensorFile,
    "parameters": lambda path: load_parameters(path, opscope.NetBuilder("n")),
    "array": read_array,
    "nnet3 model": Nnet.read,
    "nnet3 rxfilename": open_reader,
    "nnet3 listed": lambda path: Files().read(path, lambda reader: reader.size, listed=True),
    "nnet3 place": lambda path: Files().read(f"{path}:3", lambda reader: reader.size),
    "nnet3 window": WindowedFile,
    "nnet3 stream": _streamed,
    "nnet3 there": check_there,
    "nnet3 config": read_config_text,
    "nnet3 xconfig": split_lines,
    "nnet3 matrix": read_matrix_file,
    "nnet3 vector": read_vector_file,
    "cntk config": load_config,
    "cntk model": open_model,
    "cntk v1 model": read_model,
    "cntk checkpoint": read_checkpoint,
    "cntk initial value": lambda path: read_matrix(path, np.dtype(np.float32)),
    "cntk htk": HtkFile.open,
    "cntk script": read_script,
    "cntk states": read_states,
    "cntk hmms": lambda path: Hmms.read(path, path, ["a"]),
    "cntk lattices": lambda path: LatticeArchive([path], Hmms.__new__(Hmms)),
    "cntk htk lattice": lambda path: read_htk_lattice(path, Hmms.__new__(Hmms)),
    "cntk words": read_lines,
    "cntk word counts": lambda path: count_words(path, "<s>", "</s>"),
    "cntk sections": read_sections,
    "cntk sparse": SteadyFile,
    "cntk table": lambda path: read_table(path, [Columns("x", 0, 1)]),
    "cntk labels": read_labels,
    "cntk means": read_opencv,
}
WRITERS: dict[str, Callable[[str], object]] = {
    "atomic": lambda path: atomic.write_atomically(path, b"x"),
    "together": lambda path: atomic.write_together([(path, lambda file: file.write(b"x"))]),
    "pair": lambda path: atomic.write_pair(
        (path, lambda file: file.write(b"x")), (path + ".2", lambda file: None), path + ".3"
    ),
    "check": atomic.check_writable,
    "folder": lambda path: atomic.make_folder_of(os.path.join(path, "b")),
    "table": _written,
    "net": lambda path: opscope.save(opscope.NetBuilder("n"), opscope.Scope(), path),
    "open_file": lambda path: values.open_file(path, "wb").close(),
}
CASES = ["absolute", "up", "link", "linked folder", "process"]


@pytest.fixture
def named(tmp_path, monkeypatch) -> dict[str, str]:
    """Paths of a file outside of the folder `in`, which is the working folder, by how they go."""
    for folder in ("in", "out"):
        Path(tmp_path, folder).mkdir()
    Path(tmp_path, "out", "file.pb").write_bytes(b"secret")
    monkeypatch.chdir(tmp_path / "in")
    monkeypatch.delenv("OPSCOPE_ROOT", raising=False)
    os.symlink("../out/file.pb", "link.pb")
    os.symlink("../out", "folder")
    return {
        "absolute": str(tmp_path / "out" / "file.pb"),
        "up": "../out/file.pb",
        "link": "link.pb",
        "linked folder": "folder/file.pb",
        "process": "/proc/self/cwd/../out/file.pb",
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_leaves_the_root(reader, case, named):
    with opscope.confined("."), pytest.raises(opscope.OutsideError) as caught:
        READERS[reader](named[case])
    assert "file" in str(caught.value) and repr(os.getcwd()) in str(caught.value)


@pytest.mark.parametrize("reader", READERS)
def test_readers_read_inside(reader, named):
    """What they say of a file inside is about its contents."""
    Path("inside").write_bytes(b"\0\1nothing")
    with opscope.confined("."):
        try:
            READERS[reader]("inside")
        except opscope.OutsideError:
            raise
        except (opscope.OpscopeError, AttributeError):
            pass  # AttributeError: of the empty Hmms above


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("writer", WRITERS)
def test_no_writer_leaves_the_root(writer, case, named, tmp_path):
    with opscope.confined("."), pytest.raises(opscope.OutsideError, match="lies outside of"):
        WRITERS[writer](named[case])
    assert sorted(os.listdir(tmp_path / "out")) == ["file.pb"]
    assert Path(tmp_path, "out", "file.pb").read_bytes() == b"secret"
    assert sorted(os.listdir()) == ["folder", "link.pb"]


@pytest.mark.parametrize("writer", WRITERS)
def test_writers_write_inside(writer, named):
    with opscope.confined("."):
        WRITERS[writer](os.path.abspath("new"))


def test_roots_of_the_switch(named, monkeypatch, tmp_path):
    Path("mine").write_text("1")
    monkeypatch.setenv("OPSCOPE_ROOT", "." + os.pathsep + str(tmp_path / "out"))
    assert values.read_text("../out/file.pb") == "secret" and values.read_text("mine") == "1"
    monkeypatch.setenv("OPSCOPE_ROOT", ".")
    with pytest.raises(opscope.OutsideError, match="OPSCOPE_ROOT"):
        values.read_text("../out/file.pb")
    monkeypatch.setenv("OPSCOPE_ROOT", "absent")
    with pytest.raises(opscope.OpscopeError, match="'absent': there is no such folder"):
        values.read_text("mine")


def test_blocks(named):
    with pytest.raises(opscope.OpscopeError, match="at least one folder"), opscope.confined():
        pass
    with pytest.raises(opscope.OpscopeError, match="no such folder"), opscope.confined("absent"):
        pass
    with opscope.confined(".", trust=["../out/file.pb"]):
        assert values.read_text("link.pb") == "secret"
        assert values.read_text("../out/file.pb") == "secret"
        with opscope.confined("../out"):
            assert values.read_text("../out/file.pb") == "secret"  # both allow it
            with pytest.raises(opscope.OutsideError):
                atomic.write_atomically("mine", b"")
    with opscope.confined(".", trust=["../out"]):
        atomic.write_atomically("../out/more", b"")
    assert values.read_text("../out/file.pb") == "secret"


def test_a_trusted_name_is_no_door(named):
    """A path that only looks like a trusted one after `..` is taken away is another file."""
    Path("../out/typed").write_text("")
    os.symlink("../out/file.pb", "../out/typed.link")
    with opscope.confined(".", trust=["../out/typed"]):
        values.read_text("../out/typed")
        for path in (
            "../out/typed.link",
            "../out/file.pb",
            "../out/typed2",
            "folder/../out/file.pb",
        ):
            with pytest.raises(opscope.OutsideError):
                values.read_text(path)


def test_threads_are_confined(named):
    caught: list[BaseException] = []

    def read() -> None:
        try:
            values.read_text("../out/file.pb")
        except opscope.OutsideError as error:
            caught.append(error)

    with opscope.confined("."):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert len(caught) == 1


@pytest.mark.parametrize("listed", [True, False], ids=["proc", "no proc"])
@pytest.mark.parametrize("mode", ["rb", "wb"])
def test_a_link_that_changes(mode, listed, named, monkeypatch):
    """A folder that becomes a link between the check and the opening."""
    os.mkdir("sub")
    Path("sub/file.pb").write_bytes(b"mine")
    if not listed:
        monkeypatch.setattr(roots, "_DESCRIPTORS", "/absent")
    true = os.open

    def swap(path, flags, mode=0o666):
        if path == "sub/file.pb":
            os.rename("sub", "was")
            os.symlink("../out", "sub")
        return true(path, flags, mode)

    with opscope.confined("."):
        monkeypatch.setattr(os, "open", swap)
        with pytest.raises(opscope.OutsideError):
            values.open_file("sub/file.pb", mode)
    assert Path("../out/file.pb").read_bytes() == b"secret"


def test_a_folder_that_changes_before_writing(named, monkeypatch):
    os.mkdir("sub")
    true = os.open

    def swap(path, flags, mode=0o666):
        if str(path).endswith(".tmp") and os.path.isdir("sub") and not os.path.islink("sub"):
            os.rename("sub", "was")
            os.symlink("../out", "sub")
        return true(path, flags, mode)

    with opscope.confined("."):
        monkeypatch.setattr(os, "open", swap)
        with pytest.raises(opscope.OutsideError):
            atomic.write_atomically("sub/file.pb", b"x")
    assert os.listdir("../out") == ["file.pb"] and Path("../out/file.pb").read_bytes() == b"secret"


def test_tensors_are_those_that_were_checked(named, monkeypatch):
    """The library that reads them opens the file itself: by what was opened, not by its name."""
    b = opscope.NetBuilder("n")
    b.fc(b.input("x", [-1, 2]), size=1)
    scope = opscope.Scope()
    b.initialize(scope)
    opscope.save(b, scope, "n.pb")
    with values.open_file("n.safetensors") as file, opscope.confined("."):
        assert os.path.samefile(roots.path_of(file), "n.safetensors")
        os.replace("n.safetensors", "other")
        assert os.path.samefile(roots.path_of(file), "other")
    with values.open_file("other") as file:
        assert roots.path_of(file) == "other"


def test_without_roots_nothing_is_resolved(named, monkeypatch):
    """The price of the door where there is no root: no call of the system more."""
    calls: list[str] = []
    monkeypatch.setattr(os.path, "realpath", lambda path: calls.append(path))
    monkeypatch.setattr(os, "readlink", lambda path: calls.append(path))
    Path("mine").write_text("1")
    values.read_file("mine")
    WindowedFile("mine", listed=True)
    assert not calls


def test_initial_values_of_a_net_lie_beside_it(named):
    """A `.pb` in CNTK's dialect names files; without any root they must lie with it."""
    Path("w.txt").write_text("1 2\n")
    Path("model.ndl").write_text(
        'load=ndl\nndl=[\nx=InputValue(2)\nW=Parameter(1,2,init="fromFile",'
        'initFromFilePath="w.txt")\ny=Times(W,x)\nOutputNodes=(y)\n]\n'
    )
    (network,) = networks_of("model.ndl").values()
    parameter = network.find("W")
    parameter.value, parameter.attributes["shape"] = None, (0, 0)
    for path in ("w.txt", *named.values()):
        parameter.attributes["initFromFilePath"] = path
        Path("net.pb").write_bytes(serialize_net(to_desc(network)))
        result = CliRunner().invoke(main, ["verify", os.path.abspath("net.pb")])
        if path == "w.txt":
            assert "2 parameters, no error" in result.stdout, result.output
        else:
            assert result.exit_code == 1 and "lies outside of" in result.stderr, path
            assert repr(path) in result.stderr
