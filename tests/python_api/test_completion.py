"""What editors complete, and what type checkers know of the results of calls: Jedi and pyright."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import opscope

HEAD = """\
import opscope
from opscope import NetBuilder, nnet3

b = NetBuilder("net")
x = b.input("x", [-1, 4])
loaded = opscope.load("net")
history = opscope.train(b, [], epochs=1)
"""

COMPLETED = {
    "b.": ["input", "fc", "conv2d", "softmax", "run", "backward_from", "summary", "op_list"],
    "b.softm": ["softmax", "softmax_cross_entropy"],
    "b.reduce_": ["reduce_sum", "reduce_mean"],
    "x.": ["shape", "dtype", "T", "reshape", "sum", "astype"],
    "b.fc(x, size=3).": ["shape", "reshape"],  # a layer
    "b.softmax(x).": ["shape", "reshape"],  # an operator
    "b.mean(x).": ["shape", "ndim"],
    "(x @ x.T + 1)[0].sum().": ["name", "reshape"],
    "b.top_k(x, k=2)[0].": ["reshape"],
    "b.lstm_cell(x, x, x).": ["h", "c"],
    "b.lstm_cell(x, x, x).h.": ["reshape"],
    "b.summary().": ["rows", "parameters", "values"],
    "b.net.": ["run", "summary", "op_list"],
    "history.": ["rows", "last", "columns", "to_csv", "plot", "metrics"],
    "loaded.": ["net", "scope", "predict", "summary"],
    "loaded.scope.": ["numpy", "feed", "find"],
    "loaded.net.": ["run", "desc"],
    "opscope.Scope().": ["numpy", "feed", "var"],
    "opscope.": ["train", "load", "save", "NetBuilder", "Minibatches", "Callback", "Measure"],
    "opscope.nnet3.": ["Nnet", "compile_request"],
    "nnet3.": ["Nnet", "compile_request"],
}


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A folder that holds the package under its name."""
    home = Path(opscope.__file__).parent
    if home.name == "opscope":
        return home.parent
    folder = tmp_path_factory.mktemp("parent")
    try:
        (folder / "opscope").symlink_to(home, target_is_directory=True)
    except OSError:
        pytest.skip("the package's folder has another name, and links cannot be made")
    return folder


@pytest.mark.parametrize("typed", COMPLETED)
def test_jedi_completes(typed, parent, tmp_path):
    jedi = pytest.importorskip("jedi")
    project = jedi.Project(tmp_path, added_sys_path=[str(parent)])
    lines = (HEAD + typed).splitlines()
    script = jedi.Script("\n".join(lines), path=tmp_path / "script.py", project=project)
    found = {name.name for name in script.complete(len(lines), len(lines[-1]))}
    assert set(COMPLETED[typed]) <= found, sorted(found)


def test_jedi_shows_signatures_and_documentation(parent, tmp_path):
    jedi = pytest.importorskip("jedi")
    project = jedi.Project(tmp_path, added_sys_path=[str(parent)])
    for call, parameters, told in (
        ("b.softmax(", ["x", "axis", "name"], "exp(x)"),
        ("b.fc(", ["x", "size", "activation"], "connected"),
        ("opscope.train(", ["net", "data", "epochs", "callbacks", "metrics"], "Train a net"),
    ):
        lines = (HEAD + call).splitlines()
        script = jedi.Script("\n".join(lines), path=tmp_path / "script.py", project=project)
        (found,) = script.get_signatures(len(lines), len(lines[-1]))
        assert set(parameters) <= {parameter.name for parameter in found.params}
        assert told in found.docstring()


REVEALED = {
    "b.fc(x, size=3)": "Var",
    "b.softmax(x)": "Var",
    "b.mean(x)": "Var",
    "b.sum([x, x])": "Var",
    "b.top_k(x, k=2)": "tuple[Var, ...]",
    "b.lstm_cell(x, x, x)": "LSTMState",
    "x + 1": "Var",
    "1 - x": "Var",
    "x @ x": "Var",
    "x[0, ..., None]": "Var",
    "x < 3": "Var",
    "x == 3": "Var",
    "abs(-x)": "Var",
    "x.T.reshape(2, 2).sum(axis=0)": "Var",
    "x.shape": "tuple[int, ...] | None",
    "len(x)": "int",
    "history": "History",
    "history['loss']": "list[float]",
    "loaded": "Loaded",
    "loaded.scope": "Scope",
    "b.summary()": "Summary",
    "b.run(feed={}, fetch=x)": "dict[str, ndarray[Any, dtype[Any]]]",
    "nnet3.Nnet": "type[Nnet]",
}
WRONG = {
    "x.rehsape(2)": 'Cannot access attribute "rehsape" for class "Var"',
    "b.softmax(x, axs=1)": 'No parameter named "axs"',
    "history.row": 'Cannot access attribute "row" for class "History"',
}


@pytest.mark.slow
def test_pyright_knows_what_calls_return(parent, tmp_path):
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    lines = [*HEAD.splitlines(), *(f"reveal_type({text})" for text in REVEALED), *WRONG]
    (tmp_path / "script.py").write_text("\n".join(lines) + "\n")
    settings = {"include": ["script.py"], "extraPaths": [str(parent)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-P", "-m", "pyright", "--outputjson"]
    done = subprocess.run(
        [*command, "--pythonpath", sys.executable], cwd=tmp_path, capture_output=True, text=True
    )
    try:
        found = json.loads(done.stdout)["generalDiagnostics"]
    except ValueError:
        pytest.skip(f"pyright does not run here: {(done.stderr or done.stdout).strip()[-200:]}")
    said = {item["range"]["start"]["line"]: (item["severity"], item["message"]) for item in found}
    first = len(HEAD.splitlines())
    for line, (text, wanted) in enumerate(REVEALED.items(), first):
        severity, message = said.pop(line)
        told = re.search(r'is "(.*)"$', message)
        assert severity == "information" and told, (text, message)
        if "ndarray" not in wanted:  # NumPy's stubs say it in another way in each release
            assert told[1] == wanted, text
        else:
            assert told[1].startswith("dict[str, ndarray"), text
    for line, (text, wanted) in enumerate(WRONG.items(), first + len(REVEALED)):
        severity, message = said.pop(line)
        assert severity == "error" and wanted in message, text
    assert not [message for severity, message in said.values() if severity == "error"]


def test_live_objects_complete_without_changing_the_net():
    """As in a notebook, where completion sees the objects themselves."""
    jedi = pytest.importorskip("jedi")
    b = opscope.NetBuilder("net")
    x = b.input("x", [-1, 4])
    names = {"b": b, "x": x, "opscope": opscope}
    for typed, wanted in (
        ("b.softm", "softmax"),
        ("x.resh", "reshape"),
        ("b.fc(x, size=3).resh", "reshape"),
        ("opscope.nnet3.Nn", "Nnet"),
    ):
        found = {name.name for name in jedi.Interpreter(typed, [names]).complete()}
        assert wanted in found, typed
    assert {"softmax", "fc", "run"} <= set(dir(b)) and {"T", "sum"} <= set(dir(x))
    assert not b.op_list.ops
