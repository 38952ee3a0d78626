"""The kind of a file by its content: one recognition for all that take files."""

from __future__ import annotations

import os
from typing import BinaryIO

from ...cntk.models.open_model import format_of
from ...framework.base.errors import FormatError, SaveError
from ...framework.base.options.plugins import call_plugin
from ...framework.base.untrusted.opener import file_path, open_file
from ...framework.files.saved import paths_of
from ...kaldi.fst.files.openfst import is_openfst
from ...nnet3.network.vosk_folder import acoustic_model_of
from ...nnet3.programs.base.file_kinds import TABLE
from ...nnet3.programs.base.file_kinds import kind_of_file as kaldi_kind
from .kinds import KINDS, SCRIPTS, kind_named, plugin_kinds, suffixed
from .signs import is_safetensors, kaldi_token, kind_of_message, message_fields
from .texts import SUFFIXES, kind_of_text

_SNIFFED = 1 << 20
_MOST_TEXT = 1 << 16
_MOST_NAME = 1 << 10
_TORCH = ("model.py", "model.safetensors", "config.json")
_NNET3_BEHIND = b"<Nnet3>"
_CNTK = {"model": "model", "v2 model": "model", "checkpoint": "cntk checkpoint"}
_NAMED = {
    kind.named: kind.name for kind in KINDS.values() if kind.named and kind.name not in SCRIPTS
}
"""Kinds by the end of the name, for files whose content does not tell: what is wrong with such a
file is what its reader says."""


def kind_of(path: str) -> str:
    """The kind of a file or folder, one of `KINDS`, or "" if it is none.

    Args:
        path: of a file or folder; or a table of Kaldi's, such as `ark:FILE`.

    Raises:
        FormatError: it cannot be read, or is a pipe or a device.
    """
    if match := TABLE.match(path):
        return "script file" if match[1] == "scp" else "archive"
    if os.path.isdir(file_path(path)):
        kind = "vosk" if acoustic_model_of(path) else "torch" if _is_torch(path) else ""
        return kind or _plugged(path, b"")
    with open_file(path) as file:
        try:
            head = file.read(_SNIFFED)
            size = os.fstat(file.fileno()).st_size
            kind = _binary(path, file, head, size) or _text(path, head) or _plugged(path, head)
        except OSError as error:
            raise FormatError(f"{path}: {error.strerror}") from error
    return kind or _NAMED.get(os.path.splitext(path)[1].lower(), "")


def _plugged(path: str, head: bytes) -> str:
    """The kind of another package that a file is of, or ""."""
    for kind in plugin_kinds():
        if kind.matches is not None and call_plugin(kind.title, kind.matches, path, head):
            return kind.name
    return ""


def known_kind(path: str) -> str:
    """The same, of a file that must be of some kind.

    Raises:
        FormatError: it cannot be read, or is of no kind; the message says what was looked for.
    """
    kind = kind_of(path)
    if not kind:
        if is_empty(path):
            raise FormatError(f"{path}: the file is empty")
        kinds = [*KINDS.values(), *plugin_kinds()]
        looked = "".join(f"\n{kind.title}: {kind.sign}" for kind in kinds)
        what = "a folder that is" if os.path.isdir(path) else "a file that is"
        raise FormatError(f"{path}: {what} of no known kind; looked for:{looked}")
    return kind


def is_empty(path: str) -> bool:
    """Whether a file of this name has no byte."""
    return os.path.isfile(path) and not os.path.getsize(path)


def no_net(path: str, kind: str, use: str) -> FormatError:
    """The error of a file that holds no net.

    Args:
        kind: of the file, "" for an unknown one. use: what the net was wanted for: `to look at`.
    """
    if kind:
        return FormatError(f"{path}: {kind_named(kind).title}: it holds no net {use}")
    if is_empty(path):
        return FormatError(f"{path}: the file is empty")
    if os.path.isdir(path):
        return FormatError(
            f"{path}: a folder without am/final.mdl and without model.py: neither a Vosk model nor"
            " a module of `to-torch`"
        )
    return FormatError(f"{path}: neither a net nor a file of Kaldi's or CNTK's that is known")


def check_name(path: str, kind: str) -> None:
    """Refuse to write a model under a name that tells another kind of model.

    Raises:
        SaveError: the suffix belongs to another kind.
    """
    suffix = os.path.splitext(path)[1].lower()
    named = suffixed(suffix)
    if named and kind not in [each.name for each in named]:
        raise SaveError(
            f"cannot write {path}: what is written is: {kind_named(kind).title}, and NAME{suffix}"
            f" is the name of: {named[0].title}; `opscope convert` makes other kinds"
        )


def check_language(path: str, kind: str) -> None:
    """Refuse a script of CNTK's whose name does not tell its language, by which networks are built.

    Raises:
        FormatError: `kind` is one of these languages, and the name has another suffix.
    """
    suffix = KINDS[kind].named if kind in SCRIPTS and kind != "cntk config" else ""
    if not path.lower().endswith(suffix):
        raise FormatError(
            f"{path}: {KINDS[kind].title} by its content: networks are built of files NAME{suffix}"
        )


def files_of(path: str) -> list[str]:
    """The files that a path of a network stands for: of a saved net also its arrays."""
    if os.path.isdir(path):
        return [os.path.join(path, name) for name in ("am/final.mdl", "final.mdl", *_TORCH)]
    saved = path.endswith(".pb") or not os.path.exists(path)
    return [path, *paths_of(path)] if saved else [path]


def _is_torch(folder: str) -> bool:
    """Whether a folder is one that `to-torch` has written."""
    return all(os.path.isfile(os.path.join(folder, name)) for name in _TORCH)


def _binary(path: str, file: BinaryIO, head: bytes, size: int) -> str:
    kind = kaldi_token(head)
    if kind == "acoustic model" and not _has_nnet3(file, head):
        return "transition model"
    if kind:
        return kind
    if is_openfst(head.removeprefix(b"\0B")):
        return "fst"
    if is_safetensors(head, size):
        return "checkpoint" if b'"opscope.checkpoint"' in head else "safetensors"
    if head.startswith(b"LAT "):
        return "lattice archive"
    if head.startswith(b"\x93NUMPY"):
        return "array"
    if head.startswith(b"PK") and b".npy" in head[:_MOST_NAME]:
        return "arrays"
    if head[:1] == b"\x08":
        named = _NAMED.get(os.path.splitext(path)[1].lower(), "")
        if recognized := kind_of_message(message_fields(file, size), named):
            return recognized
    if recognized := _CNTK.get(format_of(head) or "", ""):
        return recognized
    return "htk features" if b"\0" in head[:12] and _is_htk(path) else ""


def _has_nnet3(file: BinaryIO, head: bytes) -> bool:
    """Whether the token of a network stands anywhere in a file; it is read by pieces."""
    kept = head
    while kept:
        if _NNET3_BEHIND in kept:
            return True
        more = file.read(_SNIFFED)
        kept = kept[-len(_NNET3_BEHIND) :] + more if more else b""
    return False


def _is_htk(path: str) -> bool:
    from ...cntk.readers.base.htk_files import HtkFile

    try:
        HtkFile.open(path)
    except FormatError:
        return False
    return True


def _text(path: str, head: bytes) -> str:
    suffix = os.path.splitext(path)[1].lower()
    if b"\0" not in head[:_MOST_TEXT]:
        text = head[:_MOST_TEXT].decode("utf-8", "replace")
        if suffix in SUFFIXES:
            return kind_of_text(text, suffix)
        kind = "" if suffix in _NAMED else kaldi_kind(path)
        if kind in ("request", "config", "xconfig", "value"):
            return kind
        return kind_of_text(text, suffix)
    kind = kaldi_kind(path)
    return "archive" if kind == "table" else kind
