"""The lock of a folder: a second run is refused while the first one holds it."""

from __future__ import annotations

import os

import pytest

from opscope.framework.base.errors import SaveError
from opscope.framework.training.folder_lock import folder_lock


def test_two_runs_in_one_folder(tmp_path):
    with folder_lock(str(tmp_path)):
        with pytest.raises(
            SaveError, match=f"another run is under way there .process {os.getpid()}"
        ):
            with folder_lock(str(tmp_path)):
                pass
    with folder_lock(str(tmp_path)):
        pass
