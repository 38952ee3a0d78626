"""Every call of the package that opens a file goes through the door for named files.

The door is `framework/base/untrusted/opener.py` for reading and `framework/base/files/atomic.py`
for writing: only there are paths held to the folders of `--root`, and pipes and devices refused.
"""

import ast
from pathlib import Path

from house import FLOORS

ROOT = Path(__file__).parent.parent

MODULES = {
    *("os", "io", "gzip", "bz2", "lzma", "tarfile", "zipfile", "codecs", "Image", "tokenize"),
    *("wave", "sndhdr", "mmap", "shelve", "dbm"),
}
"""Whose `open` opens a file."""
LOADERS = {
    *("np.load", "torch.load", "onnx.load", "onnx.load_model", "pickle.load", "soundfile.read"),
    *("ElementTree.parse", "runpy.run_path"),
}
"""Functions of others by their whole names."""
OPENERS = {
    *("FileIO", "ZipFile", "TarFile", "CDLL", "safe_open", "load_file", "save_file", "mmap"),
    *("fromfile", "memmap", "loadtxt", "genfromtxt", "open_memmap", "tofile", "savetxt"),
    *("copyfile", "copy2", "copytree", "realpath", "SoundFile", "InferenceSession"),
}
"""Functions that open a file, or choke on a name that is none, whoever has them."""
LAST = {"open", *OPENERS, *(name.rpartition(".")[2] for name in LOADERS)}
PATH_METHODS = {"read_text", "write_text", "write_bytes"}
"""Methods of `Path` that open it; of these names the package has functions, too, which are not
methods. `Path.read_bytes` is known by having no argument."""

DIRECT = {
    "framework/base/untrusted/opener.py": {"open": 2, "os.open": 1, "os.path.realpath": 1},
    "framework/base/untrusted/roots.py": {"os.open": 1, "os.path.realpath": 6},
    # Under names that `_real` has checked, and beside them.
    "framework/base/files/atomic.py": {"os.open": 2, "open": 1, "shutil.copy2": 1},
    "framework/base/files/leftovers.py": {"os.open": 1},
    # Of an open file, or of a path that leads to one.
    "framework/base/untrusted/archives.py": {"zipfile.ZipFile": 1},
    # MEL's session opens models by names of its own, and writes through the door.
    "cntk/mel/commands.py": {"np.loadtxt": 1, ".open": 2, ".write_text": 1},
    "bridges/edit/mel_script.py": {".open": 1},
    "cntk/readers/base/htk_files.py": {"np.fromfile": 2},
    "cntk/readers/htk/options.py": {".open": 1},  # of a reader, not of a file
    # Of bytes, or of what was written just before.
    "speech/audio/read.py": {"soundfile.SoundFile": 1},
    "bridges/compare/onnx_nets.py": {"onnxruntime.InferenceSession": 1},
    "bridges/onnx/export/checking.py": {"onnxruntime.InferenceSession": 1, "onnx.load": 1},
    "cntk/readers/image/reader.py": {"Image.open": 1},
    # The package's own files and the system's: no file names them.
    "bridges/view/html.py": {".read_text": 1},
    "speech/serving/server.py": {".read_text": 1},
    "cntk/brainscript/library.py": {".read_text": 1},
    "framework/base/cpu/cores.py": {".read_text": 1, "open": 2},
    "framework/fusion/compiled/compiler.py": {".read_text": 1},
    "framework/fusion/compiled/libraries.py": {
        ".read_bytes": 1,
        "ctypes.CDLL": 1,
        "os.path.realpath": 1,
    },
    "framework/fusion/compiled/native.py": {"ctypes.CDLL": 1},
    "framework/fusion/cuda/cublas.py": {"ctypes.CDLL": 1},
    "framework/fusion/cuda/device_kernels.py": {".read_text": 1},  # of the package's kernels
    "native/building.py": {".read_bytes": 1, ".write_text": 1},  # of the library that is built
    "native/units.py": {".read_text": 2, ".write_text": 1},  # headers for the compiler
    "framework/base/machine/huge_pages.py": {"ctypes.CDLL": 1},  # of this process
    "framework/base/machine/installed.py": {"open": 2},
    "framework/base/python/bounded_cache.py": {"ctypes.CDLL": 1},  # of this process
    "framework/fusion/compiled/library_files.py": {"os.open": 1},
    # Of /proc: whether a process is alive; and of this process.
    "framework/base/machine/processes.py": {"open": 1, "ctypes.CDLL": 1},
    "operators/backends/products/mkl.py": {"ctypes.CDLL": 1, "os.path.realpath": 2},
    "kaldi/fst/files/byte_file.py": {"mmap.mmap": 1},  # of an open file
    "python_api/cli/standard_streams.py": {"os.open": 2, "open": 1},
    # Logs and ends of jobs, in the folder of the training, which the user names.
    "scale/jobs/dask_jobs.py": {"open": 2},
    "scale/jobs/local.py": {"open": 1},
    "framework/training/folder_lock.py": {"os.open": 1},
    "python_api/to_python/stubs.py": {".write_text": 1},
}
"""Calls past the door, by file: how many of each there may be."""


def opener(node: ast.AST) -> str:
    """What a call, or the name of a function that is passed on, opens a file with; or ''."""
    if isinstance(node, ast.Name):
        return node.id if node.id == "open" or node.id in OPENERS else ""
    if isinstance(node, ast.Attribute):
        if node.attr not in LAST:
            return ""
        owner, name = ast.unparse(node.value), ast.unparse(node)
        known = node.attr in OPENERS or name in LOADERS
        return name if known or (node.attr == "open" and owner in MODULES) else ""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    if opener(node.func):
        return ""  # found as a name
    method, first = node.func.attr, node.args[:1]
    by_mode = method == "open" and first and isinstance(first[0], ast.Constant)
    of_path = method in PATH_METHODS or (method == "read_bytes" and not first)
    return f".{method}" if by_mode or of_path else ""


def openers(node: ast.AST) -> list[str]:
    """What a call opens files with: itself, or what it is given for it."""
    if not isinstance(node, ast.Call):
        return []
    given = [node.func, *node.args, *(keyword.value for keyword in node.keywords)]
    parts = [part for part in given if not isinstance(part, ast.Call)]
    return [what for part in (node, *parts) if (what := opener(part))]


def found() -> dict[str, dict[str, int]]:
    """The calls of the package, in the form of `DIRECT`."""
    calls: dict[str, dict[str, int]] = {}
    for floor in FLOORS:
        for file in sorted((ROOT / floor).rglob("*.py")):
            if floor == "testing" or file.name.endswith("_pb2.py"):
                continue
            name = file.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                for what in openers(node):
                    counts = calls.setdefault(name, {})
                    counts[what] = counts.get(what, 0) + 1
    return calls


def test_files_are_opened_through_the_door() -> None:
    assert found() == DIRECT, "open by open_file, open_text, read_bytes ... or write by atomic.py"


def test_openers_are_known() -> None:
    """The forms of a call that a reader might open a file with are seen."""
    for text in (
        "open(p)",
        "guarded(open, p)",
        "os.open(p, 0)",
        "Path(p).read_text()",
        "Path(p).read_bytes()",
        "path.open('rb')",
        "np.load(p)",
        "wave.open(p)",
        "soundfile.SoundFile(p)",
        "np.fromfile(p)",
        "zipfile.ZipFile(p)",
        "Image.open(p)",
        "safe_open(p, 'numpy')",
        "os.path.realpath(p)",
    ):
        assert any(map(openers, ast.walk(ast.parse(text)))), text


SIZED = (
    *("framework/files", "framework/ir/attributes", "kaldi/files", "kaldi/fst", "kaldi/tables"),
    "speech/audio",
    *("cntk/models", "cntk/readers/base", "cntk/readers/binary", "cntk/readers/text"),
    *("bridges/onnx/files", "bridges/recognize"),
)
"""Rooms that read arrays whose shapes stand in files."""


def test_shapes_of_files_are_multiplied_by_one_function() -> None:
    """`count_of` lets no size of 0 hide the others, as a product does."""
    for room in SIZED:
        for file in sorted((ROOT / room).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            assert "prod(" not in text, f"{file}: take count_of"
