"""The folder of a recognizer, as Vosk has it: acoustic model, decoding graph, configs."""

from __future__ import annotations

import os
import tempfile
from itertools import permutations
from pathlib import Path

from ...framework.base.errors import SaveError
from ...framework.base.files.atomic import make_folder_of, write_atomically
from ...framework.base.untrusted.opener import read_file
from .options import SUBSAMPLING
from .stages import MARK

_CONFIG = """--min-active=200
--max-active=7000
--beam=13.0
--lattice-beam=6.0
--acoustic-scale=1.0
--frame-subsampling-factor={subsampling}
--endpoint.silence-phones={silence}
--endpoint.rule2.min-trailing-silence=0.5
--endpoint.rule3.min-trailing-silence=0.75
--endpoint.rule4.min-trailing-silence=1.0
"""


def pack(acoustic: str, graph: str, mfcc: str, folder: str, extractor: str = "") -> None:
    """Write `am`, `graph` and `conf` into a folder, and `ivector` where there is an extractor.

    Args:
        acoustic, graph: folders of an acoustic model and of its graph. mfcc: the config of its
            features. extractor: the folder of it; "": there is none.

    Raises:
        SaveError: a file cannot be written.
    """
    copy_tree(acoustic, os.path.join(folder, "am"))
    copy_tree(graph, os.path.join(folder, "graph"))
    if extractor:
        copy_tree(extractor, os.path.join(folder, "ivector"))
    conf = os.path.join(folder, "conf")
    make_folder_of(os.path.join(conf, "model.conf"))
    silence = read_file(os.path.join(graph, "phones", "silence.csl")).decode().strip()
    config = _CONFIG.format(subsampling=SUBSAMPLING, silence=silence)
    write_atomically(os.path.join(conf, "model.conf"), config.encode())
    write_atomically(os.path.join(conf, "mfcc.conf"), read_file(mfcc))


def copy_tree(source: str, target: str) -> None:
    """Copy the files of a stage, but for its mark. Raises SaveError: one cannot be written."""
    for folder, _, names in os.walk(source):
        inside = os.path.relpath(folder, source)
        for name in names:
            if name != MARK:
                path = os.path.join(target, inside, name)
                make_folder_of(path)
                write_atomically(path, read_file(os.path.join(folder, name)))


def check_apart(*folders: str) -> None:
    """Refuse folders, of a model, of the stages' results, of the model that is tuned, of which one
    would be replaced by another or copied into itself.

    Raises:
        SaveError: one is or lies in another one.
    """
    for one, other in permutations(folders, 2):
        if Path(one).resolve().is_relative_to(Path(other).resolve()):
            raise SaveError(
                f"{one} cannot be or lie in {other}: MODEL, --work and --from are folders apart"
            )


def check_target(target: str) -> None:
    """Refuse to replace a folder that is none of a recognizer.

    Raises:
        SaveError: it is one.
    """
    is_ours = os.path.isfile(os.path.join(target, "am", "final.mdl"))
    if (
        os.path.exists(target)
        and not is_ours
        and not (os.path.isdir(target) and not os.listdir(target))
    ):
        raise SaveError(f"{target} is there, and no model: it is not replaced")


def install(model: str, page: str, target: str) -> None:
    """Put copies of a folder and of a page into the place of another model, or of none.

    Raises:
        SaveError: it cannot be written; what was there is untouched.
    """
    check_target(target)
    place = os.path.abspath(target)
    make_folder_of(place)
    with tempfile.TemporaryDirectory(
        prefix=f"{os.path.basename(place)}.", dir=os.path.dirname(place)
    ) as beside:
        new = os.path.join(beside, "new")
        copy_tree(model, new)
        write_atomically(os.path.join(new, os.path.basename(page)), read_file(page))
        old = os.path.join(beside, "old")
        try:
            if os.path.exists(place):
                os.replace(place, old)
            os.replace(new, place)
        except OSError as error:
            raise SaveError(f"cannot write {target}: {error.strerror}") from None
        finally:
            if os.path.exists(old) and not os.path.exists(place):
                os.replace(old, place)
