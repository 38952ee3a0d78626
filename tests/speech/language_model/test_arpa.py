"""ARPA files: written as they were read; mistakes with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from opscope.framework.base.errors import FormatError
from opscope.speech.language_model.arpa import arpa_lines, parse_arpa, read_arpa

ARPA = """made by hand
\\data\\
ngram 1=5
ngram 2=3
ngram 3=1

\\1-grams:
-99\t<s>\t-0.3
-0.7\t</s>
-1.25\tb\t-0.4
-0.5\ta\t-0.2
-1e-05\tc

\\2-grams:
-0.2\t<s> a
-0.4\tb a
-0.3\ta b\t-0.1

\\3-grams:
-0.1\ta b a

\\end\\
"""


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "lm.arpa"
    path.write_text(ARPA)
    model = read_arpa(path)
    text = "".join(arpa_lines(model))
    assert sorted(text.split("\n")) == sorted(ARPA.split("\n")[1:])
    assert "".join(arpa_lines(parse_arpa(text.encode(), "").model(pytest.fail))) == text
    assert model.row_words(3).tolist() == [[3, 2, 3]]
    assert [tail.tolist() for tail in model.tails[3]] == [[0], [3], [1], [0]]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("\\data\\", "data", "no line \\data\\: this is no ARPA file"),
        ("ngram 2=3", "ngram 3=3", "line 4: 'ngram 2=COUNT' was expected, not 'ngram 3=3'"),
        ("ngram 2=3", "ngram 2=x", "line 4: 'ngram 2=COUNT' was expected"),
        ("ngram 1=5", "ngram 1=6", "line 7: 5 1-grams, and the head of the file says 6"),
        ("ngram 3=1", "ngram 3=0", "line 19: 1 3-grams, and the head of the file says 0"),
        ("\\2-grams:", "\\4-grams:", "line 14: \\2-grams: was expected, not '\\\\4-grams:'"),
        ("\\end\\\n", "", "\\end\\ was expected, not the end of the file"),
        ("-0.7\t<", "-0.7x\t<", "line 9: '-0.7x' is no number"),
        ("-0.7\t<", "nan\t<", "line 9: 'nan' is no number"),
        ("b\t-0.4", "b\t-", "line 10: '-' is no number"),
        ("b\t-0.4", "b\t-0.4 1", "line 10: log10 of a probability, 1 words and maybe"),
        ("\ta b a", "\ta b", "line 20: log10 of a probability, 3 words were expected, not 3"),
        ("\tb a", "\tb x", "line 16: the word 'x' is no 1-gram"),
        ("\tb a", "\ta b", "line 17: 'a b': comes again"),
        ("c", "b", "line 12: the word 'b' comes again"),
        ("\ta b a", "\tb b a", "line 20: 'b b a': its first words are no n-gram"),
        ("b\t-0.4", "b", "line 10: 'b': there are longer n-grams, but no back-off weight"),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = tmp_path / "lm.arpa"
    path.write_text(ARPA.replace(old, new, 1) if old != "c" else ARPA.replace("\tc", "\tb"))
    with pytest.raises(FormatError) as error:
        read_arpa(path)
    assert str(error.value).startswith(f"{path}: ") and problem in str(error.value)
