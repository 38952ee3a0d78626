"""Files under roots: what is refused, whatever reads or writes it, and what is not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import opscope
from file_readers import READERS
from opscope.cntk.network.dialect import to_desc
from opscope.cntk.programs.files import networks_of
from opscope.framework.base.files import atomic
from opscope.framework.base.untrusted import opener, roots
from opscope.framework.ir.messages import serialize_net
from opscope.kaldi.tables.streams import open_output
from opscope.kaldi.tables.windows import WindowedFile
from opscope.python_api.cli.main import main


def _written(path: str) -> None:
    with open_output(path) as file:
        file.write(b"x")


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
    "open_file": lambda path: opener.open_output(path).close(),
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
    assert opener.read_text("../out/file.pb") == "secret" and opener.read_text("mine") == "1"
    monkeypatch.setenv("OPSCOPE_ROOT", ".")
    with pytest.raises(opscope.OutsideError, match="OPSCOPE_ROOT"):
        opener.read_text("../out/file.pb")
    monkeypatch.setenv("OPSCOPE_ROOT", "absent")
    with pytest.raises(opscope.OpscopeError, match="'absent': there is no such folder"):
        opener.read_text("mine")


def test_blocks(named):
    with pytest.raises(opscope.OpscopeError, match="at least one folder"), opscope.confined():
        pass
    with pytest.raises(opscope.OpscopeError, match="no such folder"), opscope.confined("absent"):
        pass
    with opscope.confined(".", trust=["../out/file.pb"]):
        assert opener.read_text("link.pb") == "secret"
        assert opener.read_text("../out/file.pb") == "secret"
        with opscope.confined("../out"):
            assert opener.read_text("../out/file.pb") == "secret"  # both allow it
            with pytest.raises(opscope.OutsideError):
                atomic.write_atomically("mine", b"")
    with opscope.confined(".", trust=["../out"]):
        atomic.write_atomically("../out/more", b"")
    assert opener.read_text("../out/file.pb") == "secret"


def test_a_trusted_name_is_no_door(named):
    """A path that only looks like a trusted one after `..` is taken away is another file."""
    Path("../out/typed").write_text("")
    os.symlink("../out/file.pb", "../out/typed.link")
    with opscope.confined(".", trust=["../out/typed"]):
        opener.read_text("../out/typed")
        for path in (
            "../out/typed.link",
            "../out/file.pb",
            "../out/typed2",
            "folder/../out/file.pb",
        ):
            with pytest.raises(opscope.OutsideError):
                opener.read_text(path)


def test_threads_are_confined(named):
    caught: list[BaseException] = []

    def read() -> None:
        try:
            opener.read_text("../out/file.pb")
        except opscope.OutsideError as error:
            caught.append(error)

    with opscope.confined("."):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert len(caught) == 1


@pytest.mark.parametrize("listed", [True, False], ids=["proc", "no proc"])
@pytest.mark.parametrize("opens", [opener.open_file, opener.open_output])
def test_a_link_that_changes(opens, listed, named, monkeypatch):
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
            opens("sub/file.pb")
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


def test_without_roots_nothing_is_resolved(named, monkeypatch):
    """The price of the door where there is no root: no call of the system more."""
    calls: list[str] = []
    monkeypatch.setattr(os.path, "realpath", lambda path: calls.append(path))
    monkeypatch.setattr(os, "readlink", lambda path: calls.append(path))
    Path("mine").write_text("1")
    opener.read_file("mine")
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
