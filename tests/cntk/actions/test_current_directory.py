"""Commands run in the folder that `currentDirectory` names; the process comes back from it."""

from __future__ import annotations

from pathlib import Path

from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_command_line

CONFIG = """
command = map ; precision = "float"
map = [ action = "createLabelMap" ; minibatchSize = 2 ; section = "Train" ]
Train = [ reader = [
    readerType = "UCIFastReader" ; file = "data.txt"
    features = [ dim = 1 ; start = 1 ]
    labels = [
        start = 0 ; dim = 1 ; labelType = "category" ; labelDim = 2 ; labelMappingFile = "map.txt"
    ]
] ]
"""


def test_files_are_looked_for_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("work").mkdir()
    Path("a.cntk").write_text(CONFIG)
    Path("work", "data.txt").write_text("x 1\ny 2\nx 3\n")
    lines: list[str] = []
    config = parse_command_line(["configFile=a.cntk", "currentDirectory=work"])
    run_commands(config, Run(say=lines.append))
    assert Path("work", "map.txt").read_text().split() == ["x", "y"]
    assert Path.cwd() == tmp_path and "COMPLETED.\n" in lines
