"""The folder of a recognizer, as Vosk has it: acoustic model, decoding graph, configs."""

from __future__ import annotations

import os
import shutil

from ...framework.base.atomic import write_atomically
from ...framework.base.errors import SaveError
from ...framework.base.untrusted.opener import read_file

_CONFIG = """--min-active=200
--max-active=7000
--beam=13.0
--lattice-beam=6.0
--acoustic-scale=1.0
--frame-subsampling-factor=3
--endpoint.silence-phones={silence}
--endpoint.rule2.min-trailing-silence=0.5
--endpoint.rule3.min-trailing-silence=0.75
--endpoint.rule4.min-trailing-silence=1.0
"""


def pack(acoustic: str, graph: str, mfcc: str, folder: str) -> None:
    """Write `am`, `graph` and `conf` into a folder.

    Args:
        acoustic, graph: folders of an acoustic model and of its graph. mfcc: the config of its
            features.

    Raises:
        SaveError: a file cannot be written.
    """
    copy_tree(acoustic, os.path.join(folder, "am"))
    copy_tree(graph, os.path.join(folder, "graph"))
    conf = os.path.join(folder, "conf")
    os.makedirs(conf)
    silence = read_file(os.path.join(graph, "phones", "silence.csl")).decode().strip()
    write_atomically(os.path.join(conf, "model.conf"), _CONFIG.format(silence=silence).encode())
    write_atomically(os.path.join(conf, "mfcc.conf"), read_file(mfcc))


def copy_tree(source: str, target: str) -> None:
    """Copy the files of a stage, but for its mark. Raises SaveError: one cannot be written."""
    try:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("stage.json"))
    except (OSError, shutil.Error) as error:
        raise SaveError(f"cannot copy {source} to {target}: {error}") from None


def install(model: str, page: str, target: str) -> None:
    """Put copies of a folder and of a page into the place of another folder, or of none.

    Raises:
        SaveError: it cannot be written; what was there is untouched.
    """
    new, old = f"{target}.new", f"{target}.old"
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    copy_tree(model, new)
    try:
        shutil.copy(page, new)
        if os.path.exists(target):
            os.replace(target, old)
        os.replace(new, target)
    except OSError as error:
        raise SaveError(f"cannot write {target}: {error.strerror}") from None
    shutil.rmtree(old, ignore_errors=True)
