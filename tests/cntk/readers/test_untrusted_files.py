"""What CNTK's files may not do: name pipes, hold NUL, ask for more than they pay for."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest

import htk_files
import lattice_cases
from operations import growth
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.lattices import Hmms, LatticeArchive
from opscope.cntk.lattices.htk_text import read_htk_lattice
from opscope.cntk.network.nodes.initial_values import read_matrix
from opscope.cntk.readers.base.data import Stream
from opscope.cntk.readers.base.htk_files import read_script
from opscope.cntk.readers.base.section_file import read_sections
from opscope.cntk.readers.base.words import Classes, Vocabulary, read_word_classes
from opscope.cntk.readers.binary.format import BinaryFile
from opscope.cntk.readers.catalog import create_reader
from opscope.cntk.readers.htk.mlf import read_mlf
from opscope.cntk.readers.image.reader import read_map
from opscope.cntk.readers.language.lm_reader import Sentences
from opscope.cntk.readers.language.lu_reader import TaggedSentences
from opscope.cntk.readers.text.format import TextFormat, TextStream
from opscope.cntk.readers.uci.format import Columns, read_table
from opscope.framework.base.errors import FormatError

NINES = "9" * 5000


# -- what files name


def pipe(folder):
    os.mkfifo(folder / "pipe")
    return str(folder / "pipe")


NAMES = pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "a\0b", "folder"])
TOLD = "a pipe or a device, not a file|no file name: it holds a NUL|a folder, not a file"


def named(folder, kind):
    if kind == "folder":
        return str(folder)
    return pipe(folder) if kind == "pipe" else kind


def read_all(text):
    with create_reader(ConfigParameters(text)) as reader:
        htk_files.epoch(reader, 4)


@NAMES
def test_features_that_a_list_names(tmp_path, kind):
    htk_files.corpus(tmp_path, [4])
    (tmp_path / "a.scp").write_text(f"u0={named(tmp_path, kind)}\n")
    with (
        pytest.raises(FormatError, match=rf"a.scp:1: .*({TOLD})"),
        create_reader(htk_files.section(tmp_path)),
    ):
        pass


@NAMES
def test_label_files_that_a_list_names(tmp_path, kind):
    htk_files.corpus(tmp_path, [4])
    (tmp_path / "list").write_text(f"{named(tmp_path, kind)}\n")
    text = f"""readerType = "HTKMLFReader" ; features = [ dim = 2 ; scpFile = "{tmp_path}/a.scp" ]
        labels = [ mlfFileList = "{tmp_path}/list" ; labelDim = 3
        labelMappingFile = "{tmp_path}/states" ]"""
    with pytest.raises(FormatError, match=TOLD):
        read_all(text)


@NAMES
@pytest.mark.parametrize("inside", ["", "@/a.png"])
def test_images_that_a_map_names(tmp_path, kind, inside):
    (tmp_path / "map").write_text(f"{named(tmp_path, kind)}{inside}\t0\n")
    text = f"""readerType = "ImageReader" ; file = "{tmp_path}/map"
        features = [ width = 2 ; height = 2 ; channels = 3 ] ; labels = [ labelDim = 2 ]"""
    with pytest.raises(FormatError, match=rf"map:1: .*({TOLD})"):
        read_all(text)


@NAMES
def test_archives_that_a_table_names(tmp_path, kind):
    hmms, archive = lattice_cases.hmms(tmp_path), named(tmp_path, kind)
    if kind in ("pipe", "folder"):
        Path(f"{archive}.symlist").write_text("a\n")
    (tmp_path / "toc").write_text(f"u={archive}[0]\n")
    with pytest.raises(FormatError, match=f"{TOLD}|zero.symlist: No such file"):
        LatticeArchive([tmp_path / "toc"], hmms).read("u")


def test_a_list_of_symbols_that_is_a_pipe(tmp_path):
    os.rename(pipe(tmp_path), tmp_path / "a.lats.symlist")
    (tmp_path / "toc").write_text(f"u={tmp_path}/a.lats[0]\n")
    with pytest.raises(FormatError, match=TOLD):
        LatticeArchive([tmp_path / "toc"], lattice_cases.hmms(tmp_path)).read("u")


@NAMES
def test_lattices_by_name(tmp_path, kind):
    with pytest.raises(FormatError, match=TOLD):
        read_htk_lattice(named(tmp_path, kind), lattice_cases.hmms(tmp_path))


@pytest.mark.parametrize("name", ["/dev/zero", "a\0b"])
def test_data_are_files(name):
    with pytest.raises(FormatError, match=TOLD):
        TextFormat(name, [TextStream(Stream("f", 2), "f")])
    with pytest.raises(FormatError, match=TOLD):
        BinaryFile(name)
    with pytest.raises(FormatError, match=TOLD):
        read_sections(name)


def test_a_list_is_a_file():
    with pytest.raises(FormatError, match=TOLD):
        read_script("/dev/zero")


# -- text


def text_format(folder, text, *streams):
    (folder / "a.ctf").write_text(text)
    return TextFormat(folder / "a.ctf", [TextStream(s, s.name) for s in streams])


def test_short_samples_of_a_large_dimension(tmp_path):
    source = text_format(tmp_path, "|f 1\n|f 2\n", Stream("f", 10**9))
    with pytest.raises(FormatError, match=r"a.ctf:1: zeros for short samples of f: .*fill=NUMBER"):
        source.read_chunk(0)
    source = text_format(tmp_path, "|f 1\n|f 2\n", Stream("f", 10**5))
    assert source.read_chunk(0)[0].values.sum() == 3


@pytest.mark.parametrize("number", ["9223372036854775807", "1" * 20, "0" * 30])
def test_numbers_of_sequences_that_are_too_large(tmp_path, number):
    with pytest.raises(FormatError, match=r"a.ctf:2:1: the number of the sequence is too large"):
        text_format(tmp_path, f"1 |f 1\n{number} |f 2\n", Stream("f", 1))


def test_many_streams_that_nobody_wants(tmp_path, caplog):
    def lines(count):
        names = (f"|n{number:06} 1 " for number in range(count))
        text = "".join(f"|longname 1 {''.join(names)}\n" for _ in range(2))
        return text_format(tmp_path, text, Stream("longname", 1))

    with caplog.at_level(logging.WARNING):
        lines(500).read_chunk(0)
    shown = [record.message for record in caplog.records]
    assert len(shown) == 20 and "a.ctf:1:14: the stream 'n000000'" in shown[0]
    assert shown[-1].endswith("further names are not shown")
    logging.disable(logging.CRITICAL)
    try:
        assert growth(lambda count: lambda: lines(count).read_chunk(0), 400) < 1.5
    finally:
        logging.disable(logging.NOTSET)


def test_one_long_label_among_short_ones(tmp_path):
    (tmp_path / "a.txt").write_text("a 1\n" * 2000 + "b" * 100_000 + " 2\n")
    found = read_table(tmp_path / "a.txt", [Columns("l", 0, 1, words=True), Columns("f", 1, 1)])
    assert found[0].dtype == object and len(found[0]) == 2001
    assert found[0][0, 0] == b"a" and len(found[0][-1, 0]) == 100_000


def test_long_words_of_a_lattice(tmp_path):
    text = "N=2 L=1\nI=0 t=0\nI=1 t=0.01\nJ=0 S=0 E=1 d=:a,0.01: " + "x" * 1_000_000
    (tmp_path / "u.lat").write_text(text)
    assert read_htk_lattice(tmp_path / "u.lat", lattice_cases.hmms(tmp_path)).frames == 1


def test_a_large_class_takes_no_memory():
    classes = Classes.from_numbers("a", [0, 0, 2**31 - 2])
    assert classes.rows(np.array([0, 2]), np.dtype(np.int64)).tolist() == [
        [0, 0, 0, 2],
        [2, 2**31 - 2, 2, 3],
    ]
    assert len(classes.begin) == 3


def test_labels_of_very_many_frames(tmp_path, monkeypatch):
    path = tmp_path / "a.mlf"
    path.write_text(f'#!MLF!#\n"u"\n0 {1 << 22} s 1\n.\n')
    with pytest.raises(FormatError, match=r"a.mlf:3: .*too late"):
        read_mlf(path, frame=1e12)
    path.write_text("#!MLF!#\n" + "".join(f'"u{n}"\n0 90000 s 1\n.\n' for n in range(20)))
    assert len(read_mlf(path, frame=1e12)) == 20
    monkeypatch.setenv("OPSCOPE_LIMITS", "fill=1M")
    with pytest.raises(FormatError, match=r"a.mlf: the states of all frames: .*fill=NUMBER"):
        read_mlf(path, frame=1e12)


@pytest.mark.parametrize("text", [NINES, "-1", "1_0", "²", "1e3"])
def test_classes_of_a_map(tmp_path, text):
    (tmp_path / "map").write_text(f"a.png\t0\nb.png\t{text}\n")
    with pytest.raises(FormatError, match=r"map:2: the class: .* is no whole number") as caught:
        read_map(str(tmp_path / "map"), 10)
    assert len(str(caught.value)) < 500


def test_a_range_of_many_digits(tmp_path):
    (tmp_path / "a.scp").write_text(f"a=b[0,{NINES}]\n")
    with pytest.raises(FormatError, match=r"a.scp:1: 'name=path\[first,last\]'") as caught:
        read_script(tmp_path / "a.scp")
    assert len(str(caught.value)) < 500


def test_transitions_of_all_phones_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIMITS", "fill=100")
    with pytest.raises(FormatError, match=r"the transitions of all phones: .*fill=NUMBER"):
        Hmms.of_states(10)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_values_of_nothing(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(FormatError, match=r"a.txt: there are no numbers"):
        read_matrix(str(tmp_path / "a.txt"), np.dtype(np.float32))


def script(folder, count):
    (folder / "a").write_text("a=b[0,1]\n" * count)
    return lambda: read_script(folder / "a")


def labels(folder, count):
    lines = (f'"u{number}"\n0 1 s 1\n1 2 s 2\n.\n' for number in range(count))
    (folder / "a").write_text("#!MLF!#\n" + "".join(lines))
    return lambda: read_mlf(folder / "a")


def odd_lines(folder, count):
    source = text_format(folder, "|f 1 |q 1 |# x\n" * count, Stream("f", 2))
    return lambda: source.read_chunk(0)


def broken_line(folder, count):
    text = f"|f 1 2 |q {'| ' * count}|f 1 x y\n|f 1 2\n"
    (folder / "a").write_text(text)
    source = TextFormat(folder / "a", [TextStream(Stream("f", 2), "f")], max_errors=10**6)
    return lambda: source.read_chunk(0)


def sentences(folder, count):
    (folder / "a").write_text("a b b a\n" * count)
    words = Vocabulary("words", {"a": 0, "b": 1}, "<unk>")
    return lambda: Sentences(str(folder / "a"), words, words)


def tagged(folder, count):
    (folder / "a").write_text("a b a\nb a\n\n" * count)
    words = Vocabulary("words", {"a": 0, "b": 1}, "<unk>")
    return lambda: TaggedSentences(str(folder / "a"), words, words, ("x", "y"))


def lattice(folder, count):
    nodes = "".join(f"I={at} t={at / 100}\n" for at in range(count + 1))
    edges = "".join(f"J={at} S={at} E={at + 1} d=:a,0.01:\n" for at in range(count))
    (folder / "a").write_text(f"N={count + 1} L={count}\n{nodes}{edges}")
    hmms = lattice_cases.hmms(folder)
    return lambda: read_htk_lattice(folder / "a", hmms)


def classes(folder, count):
    (folder / "a").write_text("".join(f"{n} 1 w{n} {n * 1000}\n" for n in range(count)))
    return lambda: read_word_classes(folder / "a", "<unk>")


@pytest.mark.parametrize(
    "make", [script, labels, odd_lines, broken_line, sentences, tagged, lattice, classes]
)
def test_twice_the_text_is_twice_the_work(tmp_path, make):
    logging.disable(logging.CRITICAL)
    try:
        assert growth(lambda count: make(tmp_path, count), 150) < 2.3
    finally:
        logging.disable(logging.NOTSET)
