"""Folders with new words: `adapt` and its command."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from opscope.framework.base.errors import ArgumentError, FormatError
from opscope.python_api.cli.main import main
from opscope.speech import Adapted, Model, adapt, known_pronunciations
from speech_models import heard, lexicon_lines, small_files, write_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("adapt")
    files = small_files(path)
    files["graph/phones/align_lexicon.int"] = lexicon_lines()
    return write_files(files, path / "model")


def test_new_words_are_recognized(folder: Path, tmp_path: Path) -> None:
    listed, out = tmp_path / "words", tmp_path / "out"
    listed.write_text("aa\n\nbig b b\n")
    said = ("b_B a_E", "a_B a_E", "c_S", "a_B a_E", "b_B b_E")
    assert heard(Model(folder), *said) == "ba ba c ba [unk]"
    done = CliRunner().invoke(
        main, ["adapt", str(folder), str(out), "--words", str(listed), "--weight", "1.25"]
    )
    assert done.exit_code == 0, done.output
    assert done.stdout == "aa a a\nbig b b\n"
    assert done.stderr.startswith("2 pronunciations, each with a cost of 1.250; 1 pairs")
    # [unk] has the phones of big and costs less: this graph leaves its states for nothing.
    assert heard(Model(out), *said) == "ba aa c aa [unk]"
    assert set(known_pronunciations(out)) == {
        *known_pronunciations(folder),
        ("aa", ("a", "a")),
        ("big", ("b", "b")),
    }
    lexicon = "graph/phones/align_lexicon.int"
    assert (out / lexicon).read_bytes() == (
        folder / lexicon
    ).read_bytes() + b"10 10 2 3\n11 11 4 5\n"
    same = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    for name in same - {Path("graph/HCLr.fst"), Path("graph/Gr.fst"), Path(lexicon)}:
        assert (out / name).read_bytes() == (folder / name).read_bytes()


def test_a_known_word_gets_another_pronunciation(folder: Path, tmp_path: Path) -> None:
    made = adapt(folder, tmp_path / "out", {"ab": "a a"})
    assert made == Adapted([("ab", ("a", "a"))], [("a", "a")], 1.5)
    assert heard(Model(tmp_path / "out"), "c_S", "a_B a_E", "a_B b_E") == "c ab ab"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("\n", "words: there is no word"),
        ("aa a a\naa a a\n", "words: line 2: "),
        ("aa a a\nab a b\n", "words: line 2: the model has the word ab with a b"),
        ("aa a a\nx a q\n", "words: line 2: the model has no phone q"),
        ("ac a c\n", "words: line 1: the model has no phone c at its place"),
        ("xyz\n", "words: line 1: the word 'xyz': no word of the lexicon has the letter"),
        ("<eps> a a\n", "words: line 1: '<eps>' is a reserved symbol"),
        ("aa 0.5 0.2 a a\n", "words: line 1: 2 numbers after the word"),
        ("aa 0.5\n", "words: line 1: the word 'aa' has no phones"),
        ("aa 1.5 a a\n", "words: line 1: '1.5': a number above 0 and at most 1 was expected"),
        ("aa 1.0 0.2 1.0 1.0 a a\n", "words: line 1: the graph has one probability of silence"),
    ],
)
def test_bad_words(folder: Path, tmp_path: Path, words: str, message: str) -> None:
    (tmp_path / "words").write_text(words)
    with pytest.raises(FormatError, match=message):
        adapt(folder, tmp_path / "out", tmp_path / "words")
    assert not (tmp_path / "out").exists()


def test_bad_folders(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no empty folder"):
        adapt(folder, folder, {"aa": "a a"})
    with pytest.raises(ArgumentError, match="weight is a number"):
        adapt(folder, tmp_path / "out", {"aa": "a a"}, weight=float("nan"))
    with pytest.raises(ArgumentError, match="new words or another grammar"):
        adapt(folder, tmp_path / "out")
    files = small_files(tmp_path, static=True)
    static = write_files(files, tmp_path / "static")
    with pytest.raises(FormatError, match=r"HCLG.fst: words and grammar are one graph.*--lm"):
        adapt(static, tmp_path / "out", {"aa": "a a"})
    (tmp_path / "text").write_text("ab x ba\n")
    with pytest.raises(FormatError, match=r"text: line 1: the word 'x' is not in .*words.txt"):
        adapt(static, tmp_path / "out", text=tmp_path / "text")
    del files["graph/phones/word_boundary.int"]
    bare = write_files(files, tmp_path / "bare")
    with pytest.raises(FormatError, match=r"word_boundary.int is missing: where words begin"):
        adapt(bare, tmp_path / "out", {"aa": "a a"}, text=tmp_path / "text", skip_unknown=True)
    assert not (tmp_path / "out").exists()


SENTENCES = "aa ba\nba c\naa aa\nab c ba\n"


@pytest.mark.parametrize("static", [False, True])
def test_another_grammar(static: bool, tmp_path: Path) -> None:
    files = {**small_files(tmp_path, static=static), "rescore/G.fst": b"of the old grammar"}
    folder = write_files(files, tmp_path / "model")
    (tmp_path / "text").write_text("ba c\n")
    adapt(folder, tmp_path / "said", text=tmp_path / "text")
    assert not (tmp_path / "said/rescore").exists()
    (tmp_path / "text").write_text(SENTENCES)
    (tmp_path / "words").write_text("aa a a\n")
    options = ["--add", str(tmp_path / "words"), "--text", str(tmp_path / "text")]
    out = "--out", str(tmp_path / "out")
    for wrong in ((), (out[1], *out)):
        done = CliRunner().invoke(main, ["adapt", str(folder), *options, *wrong])
        assert done.exit_code == 2 and "is wanted once" in done.output
    done = CliRunner().invoke(main, ["adapt", str(folder), *options, *out])
    assert done.exit_code == 0, done.output
    model = Model(tmp_path / "out")
    assert heard(model, "a_B a_E", "b_B a_E", "c_S") == "aa ba c"
    assert heard(model, "a_B b_E", "a_B a_E", "b_B a_E") == "ab aa ba"
    assert {("aa", ("a", "a")), ("ab", ("a", "b"))} < set(known_pronunciations(tmp_path / "out"))
    arpa = "\\data\\\nngram 1=4\n\n\\1-grams:\n-99 <s>\n-1 </s>\n-1 aa\n-1 c\n\n\\end\\\n"
    (tmp_path / "lm").write_text(arpa)
    adapt(tmp_path / "out", tmp_path / "few", {"cc": "b b"}, arpa=tmp_path / "lm", weight=2.5)
    few = Model(tmp_path / "few")
    # What the grammar lacks is not heard, but for new words.
    assert heard(few, "a_B a_E", "b_B b_E", "c_S") == "aa cc c"
