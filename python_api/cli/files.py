"""Shared by several commands: reading nets and arrays from files, NAME=VALUE options."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, nearest
from ...framework.base.untrusted.limits import check_limit
from ...framework.base.untrusted.values import open_file
from ...framework.files.checkpoint import SUFFIX, load_checkpoint, read_checkpoint
from ...framework.files.saved import NET_SUFFIX, Loaded, load, load_desc, load_marked, paths_of
from ...framework.ir.desc import INPUT
from ...framework.ir.op_list import OpList
from ...nnet3.files.kaldi_io import is_nnet3

if TYPE_CHECKING:
    from ...nnet3.network.nnet import Nnet


def read_desc(path: str) -> OpList:
    """The description in a saved net or a checkpoint; that of a model of Kaldi's or of CNTK's is in
    a dialect of its own."""
    return read_marked(path)[0]


def read_marked(path: str) -> tuple[OpList, str]:
    """The same, and the mark that parameters beside a saved net must have; '' of anything else."""
    if path.endswith(SUFFIX):
        return read_checkpoint(path).op_list, ""
    if is_nnet3(path):
        from ...nnet3.network.nnet import Nnet

        return Nnet.read(path).to_desc(), ""
    if cntk_kind(path):
        from ...cntk.programs.files import model_desc

        return model_desc(path), ""
    net_path = paths_of(path)[0]
    if os.path.isfile(path) and not os.path.isfile(net_path):
        raise FormatError(f"{path}: neither a net nor a file of Kaldi's or CNTK's that is known")
    return load_marked(path)


def cntk_kind(path: str) -> str:
    """The kind of a CNTK file (see `cntk/programs/files.py`); empty if it is none."""
    if path.endswith((NET_SUFFIX, SUFFIX)):
        return ""
    from ...cntk.programs.files import kind_of_file

    return kind_of_file(path)


def kaldi_kind(path: str) -> str:
    """The kind of a Kaldi file that is no model (see `nnet3/programs/listing.py`), or ""."""
    if path.endswith((NET_SUFFIX, SUFFIX)) or is_nnet3(path):
        return ""
    from ...nnet3.programs.listing import kind_of_file

    return kind_of_file(path)


def read_network(path: str, kind: str) -> Nnet | None:
    """The network of Kaldi's in a model, a config, an xconfig or a `.pb`; None if it is none.

    Args:
        path: of the file.
        kind: what `kaldi_kind` says of it.
    """
    if kind in ("config", "xconfig"):
        from ...nnet3.programs.listing import read_network as read_config

        return read_config(path, kind)
    if path.endswith(SUFFIX) or kind:
        return None
    from ...nnet3.network.nnet import Nnet

    if is_nnet3(path):
        return Nnet.read(path)
    if not all(map(os.path.isfile, paths_of(path))):
        return None  # a description alone is shown as it is
    from ...nnet3.inference.saved import load_nnet
    from ...nnet3.network.dialect import DIALECT

    return load_nnet(path) if load_desc(path).metadata.get("dialect") == DIALECT else None


def read_net(path: str, device: str = "") -> Loaded:
    """The net and the values in a saved net or a checkpoint, on a device (`cpu`, `gpu:0`).

    The commands say themselves which operators run and in which phase.
    """
    from ...framework.base.backend import parse_place
    from ...framework.base.scope import Scope

    scope = Scope(parse_place(device)) if device else Scope()
    read = load_checkpoint if path.endswith(SUFFIX) else load
    return read(path, scope, train=True)


def read_array(path: str) -> np.ndarray:
    """An array from `FILE.npy`, or from `FILE.npz:KEY`.

    Raises:
        FormatError: no such file or key, or no array.
    """
    name, colon, key = path.rpartition(":")
    if colon and name.endswith(".npz"):
        arrays = read_arrays(name)
        if key not in arrays:
            raise FormatError(f"{name}: holds no array {key!r}{nearest(key, arrays)}")
        return arrays[key]
    found = _numpy_load(path)
    if not isinstance(found, np.ndarray):
        raise FormatError(f"{path}: holds several arrays; say which: {path}:KEY")
    return found


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """Arrays by name, from an `.npz` file or from a folder of `.npy` files.

    Raises:
        FormatError: no such file or folder, nothing in it, or no arrays.
    """
    if os.path.isdir(path):
        files = sorted(name for name in os.listdir(path) if name.endswith(".npy"))
        found = {name.removesuffix(".npy"): _numpy_load(os.path.join(path, name)) for name in files}
    else:
        found = _numpy_load(path)
        if isinstance(found, np.ndarray):
            raise FormatError(f"{path}: holds one array without a name; want an .npz or a folder")
    if not found:
        raise FormatError(f"{path}: holds no arrays")
    return found


def _numpy_load(path: str) -> Any:
    """The array in a `.npy` file, or those in an `.npz` by name, if the limit `unpack` allows them.

    Raises:
        FormatError: no such file, something else, or more than the limit allows.
    """
    with _guarded(path, open_file, path) as file:
        if zipfile.is_zipfile(file):
            with _guarded(path, zipfile.ZipFile, file) as archive:
                unpacked = sum(entry.file_size for entry in archive.infolist())
            check_limit("unpack", unpacked, f"{path}: the arrays in it, unpacked")
        file.seek(0)
        loaded = _guarded(path, np.load, file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return {name: _guarded(path, loaded.__getitem__, name) for name in loaded.files}


def _guarded(path: str, read: Any, *args: Any, **options: Any) -> Any:
    """Call `read`; errors of NumPy and of zip files become a FormatError."""
    try:
        return read(*args, **options)
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except OpscopeError:
        raise
    except Exception as error:
        said = str(error)
        if "allow_pickle" in said:  # NumPy takes any other file for a pickle
            said = "neither .npy nor .npz, or an array of Python's objects, which are not read"
        raise FormatError(f"{path}: no NumPy file: {said}") from None


def pairs(values: Iterable[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` options as a dict.

    Raises:
        UsageError: one has no `=`, or a name comes twice.
    """
    found: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise click.UsageError(f"{option} {text}: want NAME=VALUE")
        if name in found:
            raise click.UsageError(f"{option} {text}: {name} is given twice")
        found[name] = value
    return found


def number_or_text(text: str) -> Any:
    """An attribute's value from the command line: a bool, an int, a float, or the text itself."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def variable(desc: OpList, name: str) -> str:
    """`name`, if the net has such a variable.

    Raises:
        OpscopeError: it has none; the message names the nearest.
    """
    names = [var.name for var in desc.vars]
    if name not in names:
        inputs = ", ".join(var.name for var in desc.vars if var.kind == INPUT)
        raise OpscopeError(
            f"net {desc.name!r} has no variable {name!r}{nearest(name, names)}; its inputs are"
            f" {inputs}"
        )
    return name
