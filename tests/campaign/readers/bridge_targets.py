"""The campaign's readers of what takes any model: edit, convert, compare, from_torch."""

from __future__ import annotations

import contextlib
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

import edit_nets
import opscope
from opscope.bridges.compare.inputs import read_numbers
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.recognize.kinds import SCRIPTS
from opscope.bridges.recognize.recognizing import check_language, kind_of
from opscope.cntk.models.v1 import format_model
from opscope.cntk.programs.files import networks_of
from opscope.framework.base.errors import OpscopeError
from opscope.kaldi.files.kaldi_io import Writer
from opscope.kaldi.tables.tables import TableWriter
from opscope.python_api.formats.forms import FORMS
from opscope.python_api.formats.sources import source_of
from opscope.python_api.formats.table import forms_from

from ..inputs import Target
from .cntk_model_targets import BINARY
from .language_seeds import BRAINSCRIPT_SEEDS, CONFIG_SEEDS, MEL_SEEDS, NDL_SEEDS
from .mutate import BYTES, TEXT, word
from .onnx_targets import layers

_EDITS: tuple[Callable[[opscope.Editor], object], ...] = (
    lambda e: e.rename("*1*", "*one*"),
    lambda e: e.freeze("*").rates("*", 0.5),
    lambda e: e.low_rank("*", 2),
    lambda e: e.new_output(4),
    lambda e: e.dropout("*", 0.2),
    lambda e: e.remove("*r*", bypass=True).remove_orphans(),
)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """A step whose refusal does not end the reading."""
    with contextlib.suppress(OpscopeError):
        yield


# -- edit


def _edit(path: Path) -> None:
    """Open, change in all ways, tell the difference, write."""
    editor = opscope.edit(path)
    for change in _EDITS:
        with _alone():
            change(editor)
    str(editor.difference())
    with _alone():
        editor.save(path.with_name(f"edited{path.suffix}"), overwrite=True)


def _raw(folder: Path) -> Sequence[bytes]:
    found = []
    for binary in (True, False):
        edit_nets.nnet().write(folder / "m", binary=binary)
        found.append((folder / "m").read_bytes())
    return found


def _cntk(folder: Path) -> Sequence[bytes]:
    return [format_model(edit_nets.network())]


def _net(folder: Path, *, beside: str) -> Sequence[bytes]:
    edit_nets.saved(folder / "seed.pb")
    shutil.copy(folder / "seed.safetensors", folder / f"{beside}-last.safetensors")
    return [(folder / "seed.pb").read_bytes()]


# -- convert


def _convert(path: Path) -> None:
    """Convert to one of the forms that there are, by the content."""
    source = source_of(str(path))
    forms = forms_from(source.family)
    form = FORMS[forms[zlib.crc32(path.read_bytes()) % len(forms)]]
    target = path.with_name(f"converted{(*form.suffixes, '')[0]}")
    if form.folder:
        shutil.rmtree(target, ignore_errors=True)
    source.read()
    with contextlib.nullcontext() if source.family == "onnx" else _alone():  # read as it is made
        opscope.convert(path, target, form.name, overwrite=True)


def _onnx(folder: Path) -> Sequence[bytes]:
    return [model_bytes(layers())]


def _archives(folder: Path) -> Sequence[bytes]:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(3, 2), "b": np.ones((4, 2), np.float32)}
    found = []
    for mode in ("ark:", "ark,t:"):
        with TableWriter(f"{mode}{folder / 'a'}", "matrix") as table:
            for name, array in arrays.items():
                table.write(name, array)
        found.append((folder / "a").read_bytes())
    np.savez(folder / "a.npz", **arrays)
    opscope.convert(folder / "a.npz", folder / "a.safetensors")
    opscope.convert(folder / "a.npz", folder / "htk", "htk-folder")
    kept = [folder / "a.npz", folder / "a.safetensors", next((folder / "htk").glob("a.*"))]
    return [*found, *(each.read_bytes() for each in kept), b'#!MLF!#\n"a.lab"\n0 200000 3\n.\n']


# -- compare


def _compare(path: Path) -> None:
    """Compare a model with itself in another dtype, and with its whole form."""
    opscope.compare(path, path.with_name("whole.raw"), rows=3)


def _two_nets(folder: Path) -> Sequence[bytes]:
    seeds = _raw(folder)
    (folder / "whole.raw").write_bytes(seeds[0])
    return seeds


def _numbers(folder: Path) -> Sequence[bytes]:
    writer = Writer(True)
    writer.write_matrix(np.eye(3, dtype=np.float32))
    return [
        *_archives(folder)[:2],
        writer.getvalue(),
        b"1 2 3\n4 5e-1 6\n",
        b"a [ 1 2 ]\nb [ 3 4 ]\n",
    ]


def _read_numbers(path: Path) -> None:
    with _alone():
        read_numbers(f"{path}:b")
    read_numbers(str(path))


# -- a folder of PyTorch


def _module(of: str, what: str, folder: Path) -> Sequence[bytes]:
    """A folder of to-torch with the model that it came from; one of its files is damaged."""
    place, original = folder / of, folder / f"original.{of}"
    if of == "nnet3":
        edit_nets.nnet().write(original)
        opscope.to_torch(original, place, outputs=["output"])
    else:
        edit_nets.model(original)
        opscope.to_torch(original, place)
    return [(place / what).read_bytes()]


def _return(of: str, what: str, path: Path) -> None:
    folder = path.parent
    shutil.copyfile(path, folder / of / what)
    opscope.weights_from_torch(folder / of, folder / f"original.{of}", folder / f"trained.{of}")


def _returns(of: str, what: str) -> Target:
    name = f"{of} {Path(what).stem} of PyTorch"
    kinds = (*TEXT, word) if what.endswith(".json") else (*BYTES, word)
    read = partial(_return, of, what)
    return Target(name, Path(what).suffix, partial(_module, of, what), read, kinds)


# -- languages


def _languages(folder: Path) -> Sequence[bytes]:
    return [*NDL_SEEDS, *BRAINSCRIPT_SEEDS, *MEL_SEEDS, *CONFIG_SEEDS]


def _language(path: Path) -> None:
    """Tell a language by its text alone, then build the networks under the name it should have."""
    kind = kind_of(str(path))
    if kind not in SCRIPTS:
        raise OpscopeError(f"{path}: {kind or 'nothing'}")
    with _alone():
        check_language(str(path), kind)
    suffix = dict(zip(SCRIPTS, (".cntk", ".ndl", ".mel", ".bs"), strict=True))[kind]
    named = path.with_suffix(suffix)
    shutil.copyfile(path, named)
    with _alone():
        networks_of(str(named))


TARGETS = (
    Target("edit Kaldi", ".raw", _raw, _edit, BYTES),
    Target("edit CNTK", ".dnn", _cntk, _edit, BINARY),
    Target("edit net", ".pb", partial(_net, beside="edit net"), _edit, BYTES),
    Target("convert Kaldi", ".raw", _raw, _convert, BYTES),
    Target("convert CNTK", ".dnn", _cntk, _convert, BINARY),
    Target("convert net", ".pb", partial(_net, beside="convert net"), _convert, BYTES),
    Target("convert ONNX", ".onnx", _onnx, _convert, BYTES),
    Target("convert data", ".dat", _archives, _convert, (*BYTES, word)),
    Target("compare Kaldi", ".raw", _two_nets, _compare, BYTES),
    Target("compare inputs", ".dat", _numbers, _read_numbers, (*BYTES, word)),
    _returns("nnet3", "config.json"),
    _returns("nnet3", "model.safetensors"),
    _returns("cntk", "config.json"),
    _returns("cntk", "model.safetensors"),
    Target("language", ".txt", _languages, _language, TEXT),
)
