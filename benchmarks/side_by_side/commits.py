"""Another commit of ours as a peer: checked out beside this one, its protos compiled."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[str]:
    """The folder whose `opscope` is that of the commit; it goes when the block ends.

    Messages are those of this checkout where the commit's `.proto` files are the same, else they
    are compiled by `build.py proto` of that commit.
    """
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder, "opscope")
        adding = ["git", "worktree", "add", "--quiet", "--detach", str(tree), commit]
        subprocess.run(adding, cwd=ROOT, check=True)
        try:
            _messages(tree)
            yield folder
        finally:
            removing = ["git", "worktree", "remove", "--force", str(tree)]
            subprocess.run(removing, cwd=ROOT, check=True)


def _messages(tree: pathlib.Path) -> None:
    ours = {path.name: path.read_bytes() for path in (ROOT / "proto").glob("*.proto")}
    theirs = {path.name: path.read_bytes() for path in (tree / "proto").glob("*.proto")}
    if all(ours.get(name) == text for name, text in theirs.items()):
        for path in (ROOT / "proto").glob("*_pb2.py*"):
            shutil.copy(path, tree / "proto")
    else:
        subprocess.run([sys.executable, "build.py", "proto"], cwd=tree, check=True)
