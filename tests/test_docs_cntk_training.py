"""The page on running and training CNTK's networks: its code runs, and prints what it says."""

import pytest

from opscope.cntk.actions import run
from opscope.framework.base.errors import OpscopeError
from test_docs_nnet3 import ROOT, fences, run_blocks


def test_page():
    try:
        run_blocks(fences(ROOT / "docs/cntk_training.md"))
        with pytest.raises(OpscopeError, match="'lbfgs' already"):
            run.add_action("lbfgs", print)
    finally:
        run.ACTIONS.pop("lbfgs", None)
        run.added.discard("lbfgs")
