"""NumPy's files: arrays in `.npy`, in an `.npz`, or in a folder of `.npy`, read when asked for.

What a header says must be there: time and memory are in proportion to the file. What is compressed
may be a hundred times the file, and beyond that as much as the limit `unpack` allows.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

import numpy as np

from ..base.errors import FormatError, OpscopeError, nearest
from ..base.files.atomic import PathLike
from ..base.untrusted.archives import Archive
from ..base.untrusted.limits import check_limit
from ..base.untrusted.opener import open_file, path_text
from ..base.untrusted.values import count_of

_ENDING = ".npy"
_MOST_RATIO = 100
"""So many times its size may a compressed file hold without asking the limit."""


def read_array(path: PathLike) -> np.ndarray:
    """An array from `FILE.npy`, or from `FILE.npz:KEY`.

    Raises:
        FormatError: no such file or key, or no array.
    """
    path = path_text(path)
    name, colon, key = path.rpartition(":")
    if colon and name.endswith(".npz"):
        arrays = read_arrays(name)
        if key not in arrays:
            raise FormatError(f"{name}: holds no array {key!r}{nearest(key, arrays)}")
        return arrays[key]
    if _is_archive(path):
        raise FormatError(f"{path}: holds several arrays; say which: {path}:KEY")
    return _array(path)


def read_arrays(path: PathLike) -> Mapping[str, np.ndarray]:
    """Arrays by name, from an `.npz` file or from a folder of `.npy` files.

    Each is read when it is looked up, which may also raise FormatError.

    Raises:
        FormatError: no such file or folder, nothing in it, or no arrays.
    """
    path = path_text(path)
    if os.path.isdir(path):
        names = sorted(name for name in os.listdir(path) if name.endswith(_ENDING))
        arrays = Arrays(names, lambda name: _array(os.path.join(path, name)))
    elif _is_archive(path):
        archive = Archive(path)
        arrays = Arrays(_members(archive), lambda name: _unpacked(archive, name))
    else:
        _array(path)  # or an error that says what it is
        raise FormatError(f"{path}: holds one array without a name; want an .npz or a folder")
    if not arrays:
        raise FormatError(f"{path}: holds no arrays")
    return arrays


class Arrays(Mapping[str, np.ndarray]):
    """Arrays that are read when they are looked up, each once.

    Args:
        files: names of files. read: reads the array of one.
    """

    def __init__(self, files: list[str], read: Callable[[str], np.ndarray]) -> None:
        self._files = {name.removesuffix(_ENDING): name for name in files}
        self._read = read
        self._known = dict[str, np.ndarray]()

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._known:
            self._known[name] = self._read(self._files[name])
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _is_archive(path: str) -> bool:
    with open_file(path) as file:
        return _guarded(path, zipfile.is_zipfile, file)


def _array(path: str) -> np.ndarray:
    """The array in a `.npy` file."""
    with open_file(path) as file:
        return _guarded(path, _read, file, os.fstat(file.fileno()).st_size)


def _members(archive: Archive) -> list[str]:
    """The names of the arrays in an `.npz`, if the limit `unpack` allows all that is in it."""
    unpacked = sum(archive.sizes.values())
    # Deflate alone can reach 1032:1, as for zeros.
    if unpacked > _MOST_RATIO * archive.size:
        what = f"{archive.path}: the arrays in its {archive.size} bytes, unpacked"
        check_limit("unpack", unpacked, what)
    return [name for name in archive.sizes if name.endswith(_ENDING)]


def _unpacked(archive: Archive, name: str) -> np.ndarray:
    """An array of an `.npz`."""
    with archive.open(name) as member:
        return _guarded(f"{archive.path}: {name}", _read, member, archive.sizes[name])


def _read(file: IO[bytes], size: int) -> np.ndarray:
    """An array, if there are as many bytes of it as its header says. Raises ValueError: no array"""
    form = np.lib.format
    version = form.read_magic(file)
    # NumPy's `read_array` allocates what the header says before it looks for the data.
    header = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
    shape, _, dtype = header(file)
    if dtype.hasobject:
        raise ValueError("an array of Python's objects, which are not read")
    wanted = count_of(shape, dtype.itemsize, "the array") * dtype.itemsize
    if wanted > (there := size - file.tell()):
        raise ValueError(f"{dtype} {list(shape)} takes {wanted} bytes, but {there} are there")
    file.seek(0)
    return form.read_array(file, allow_pickle=False)


def _guarded(path: str, read: Any, *args: Any) -> Any:
    """Call `read`; errors of NumPy and of zip files become a FormatError."""
    try:
        return read(*args)
    except OpscopeError:
        raise
    except Exception as error:
        said = str(error)
        if "magic string" in said:
            said = "neither .npy nor .npz"
        raise FormatError(f"{path}: no NumPy file: {said}") from None
