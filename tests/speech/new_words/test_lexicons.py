"""Pronunciations read back from the folders of models."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from opscope.framework.base.errors import FormatError
from opscope.python_api.cli.main import main
from opscope.speech.new_words.lexicons import known_pronunciations
from speech_models import lexicon_lines, small_files, write_files

KNOWN = {("ab", ("a", "b")), ("ba", ("b", "a")), ("c", ("c",)), ("[unk]", ("b", "b"))}


@pytest.mark.parametrize("static", [False, True])
def test_graphs_know_their_words(static: bool, tmp_path: Path) -> None:
    files = small_files(tmp_path, static=static)
    folder = write_files(files, tmp_path / "model")
    found = known_pronunciations(folder)
    assert len(found) == 4 and set(found) == KNOWN
    (folder / "graph/phones.txt").unlink()
    numbered = {("ab", ("2", "4")), ("ba", ("4", "2")), ("c", ("6",)), ("[unk]", ("4", "4"))}
    assert set(known_pronunciations(folder)) == numbered
    (folder / "graph/phones/word_boundary.int").unlink()
    with pytest.raises(FormatError, match=r"neither graph/phones/word_boundary.int nor graph"):
        known_pronunciations(folder)
    (folder / "graph/phones/align_lexicon.int").write_bytes(lexicon_lines())
    assert set(known_pronunciations(folder)) == {
        ("ab", ("2", "5")),
        ("ba", ("4", "3")),
        ("c", ("6",)),
        ("[unk]", ("4", "5")),
    }


def test_the_command(tmp_path: Path) -> None:
    folder = write_files(small_files(tmp_path), tmp_path / "model")
    listed = tmp_path / "words"
    listed.write_bytes(b"ab\n\nbc\xff c\n")
    done = CliRunner().invoke(
        main, ["guess-pronunciations", str(folder), "cb", "--words", str(listed)]
    )
    assert done.exit_code == 0, done.output
    assert done.stdout_bytes == b"cb c b\nab a b\nbc\xff b c\n"
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("ab a b\nba b a\n")
    done = CliRunner().invoke(main, ["guess-pronunciations", str(lexicon), "bb", "--probabilities"])
    assert done.stdout.startswith("bb 0.") or done.stdout.startswith("bb 1.")
