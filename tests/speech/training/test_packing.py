"""The folder of a recognizer takes the place of another one, or leaves it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opscope.framework.base.errors import SaveError
from opscope.speech.training.packing import install


def test_the_old_model_stays_where_the_new_one_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old", "new"):
        (tmp_path / name / "am").mkdir(parents=True)
        (tmp_path / name / "am/final.mdl").write_text(name)
    (tmp_path / "report.html").write_text("page")
    source, page, target = (str(tmp_path / name) for name in ("new", "report.html", "old"))
    replace = os.replace

    def refused(one: str, other: str) -> None:
        if os.path.basename(one) == "new":
            raise OSError(28, "No space left on device")
        replace(one, other)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refused)
        with pytest.raises(SaveError, match="cannot write .*old: No space left"):
            install(source, page, target)
    assert (tmp_path / "old/am/final.mdl").read_text() == "old"
    install(source, page, target)
    assert (tmp_path / "old/am/final.mdl").read_text() == "new"
    assert (tmp_path / "old/report.html").read_text() == "page"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new", "old", "report.html"]
