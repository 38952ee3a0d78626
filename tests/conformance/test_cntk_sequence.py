"""Training by lattices on spoken digits: the example, one epoch of it."""

from __future__ import annotations

import re
import sys

from click.testing import CliRunner

from cntk_data import need
from opscope.cntk.programs.commands import cntk
from package_copy import ROOT

FOLDER = ROOT / "examples" / "speech_sequence"


def test_lattices_teach_words(tmp_path, monkeypatch):
    data = need("..", "speech", "htk").resolve()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(FOLDER)
    from count_words import count
    from make_lattices import main

    main(data, tmp_path)
    places = [f"DataDir={data}", f"ConfigDir={FOLDER}", "Sequences=[SGD=[maxEpochs=1]]"]
    done = CliRunner().invoke(cntk, [f"configFile={FOLDER / 'sequence.cntk'}", *places])
    assert done.exit_code == 0, done.output
    before, after = (count(name, str(data)) for name in ("sequence.model.0", "sequence.model"))
    assert before[1] == 300 and 250 < before[0] < after[0] - 10
    values = re.findall(r"Final Results: .*mmi = ([-\d.]+)", done.stderr or done.output)
    assert float(values[0]) < float(values[1])
    for name in ("count_words", "make_lattices"):
        del sys.modules[name]
