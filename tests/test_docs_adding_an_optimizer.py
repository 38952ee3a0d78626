"""The page on a new optimizer: its module and its test, as they stand there, pass."""

import os
import subprocess
import sys

from test_docs_nnet3 import ROOT, fences


def test_page(tmp_path):
    module, test = (body for _, body in fences(ROOT / "docs/adding_an_optimizer.md"))
    absolute = module.replace("from ...", "from opscope.")
    absolute = absolute.replace("from .updates", "from opscope.operators.optim.updates")
    (tmp_path / "signum.py").write_text(absolute)
    (tmp_path / "test_signum.py").write_text("import signum\n" + test)
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
