"""The page on a new operator: its modules and its test, as they stand there, pass."""

import os
import subprocess
import sys

from test_docs_nnet3 import ROOT, fences


def test_page(tmp_path):
    blocks = [body for language, body in fences(ROOT / "docs/adding_an_operator.md")]
    elementwise, other, _, test = (block for block in blocks if "import" in block or "@" in block)
    for name, block in (("swish", elementwise), ("centred", other)):
        absolute = block.replace("from ...", "from opscope.")
        absolute = absolute.replace("from ..base", "from opscope.operators.base")
        (tmp_path / f"{name}.py").write_text(absolute)
    own = test.replace("Swish", "Centred").replace('"swish"', '"centred"')
    body, _ = own.split("    def cases")
    body += "    def cases(self, rng):\n        yield Case({'x': rng.normal(size=(3, 4))})\n\n"
    body += "    def reference(self, inputs, attrs):\n        x = inputs['x']\n"
    body += "        return {'out': x - x.sum(axis=0) / max(len(x), 1)}\n"
    (tmp_path / "test_swish.py").write_text("import swish\n" + test)
    (tmp_path / "test_centred.py").write_text("import centred\n" + body)
    paths = [str(tmp_path), str(ROOT / "tests"), str(ROOT.parent), os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
