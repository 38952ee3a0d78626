"""make-lm and perplexity."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from opscope.python_api.cli.main import main


def test_make_and_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a b\n\nb a c\n")
    Path("words.txt").write_text("<eps> 0\n<s> 1\n</s> 2\na 3\nb 4\nd 5\n#0 6\n")
    run = CliRunner()
    words = "make-lm text --order 2 --method witten-bell --words words.txt --out lm.arpa".split()
    made = run.invoke(main, words)
    assert made.exit_code == 0 and made.stderr == "lm.arpa: 6 1-grams, 7 2-grams\n"
    told = run.invoke(main, ["perplexity", "lm.arpa", "text"])
    rows = dict(line.rsplit(None, 1) for line in told.stdout.splitlines())
    assert rows["sentences"] == "2" and rows["words"] == "5" and rows["unknown words"] == "1"
    # By the formula: five unigrams of seven are left 5 / 12 of the probability, and so on.
    assert float(rows["perplexity"]) < float(rows["perplexity with unknown words"])
    mixed = run.invoke(main, "make-lm lm.arpa --mix lm.arpa --prune 1e9 --out one.arpa".split())
    assert mixed.exit_code == 0 and mixed.stderr == "one.arpa: 6 1-grams\n"
    small = run.invoke(main, ["make-lm", "text", "--out", "no.arpa"])
    assert small.exit_code == 1 and "--method" not in small.stderr and "witten-bell" in small.stderr
    assert not Path("no.arpa").exists()
    broken = Path("lm.arpa").read_text().replace("ngram 1=6", "ngram 1=5")
    Path("lm.arpa").write_text(broken)
    refused = run.invoke(main, ["perplexity", "lm.arpa", "text"])
    assert refused.exit_code == 1 and "lm.arpa: line 5: 6 1-grams" in refused.stderr
