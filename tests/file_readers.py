"""Functions that take the path of a file and read it, of all floors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import opscope
from opscope.cntk.actions.words import count_words
from opscope.cntk.config.files import load_config
from opscope.cntk.lattices.archive import LatticeArchive
from opscope.cntk.lattices.hmms import Hmms
from opscope.cntk.lattices.htk_text import read_htk_lattice
from opscope.cntk.models.checkpoint import read_checkpoint
from opscope.cntk.models.open_model import open_model
from opscope.cntk.models.v1 import read_model
from opscope.cntk.network.nodes.initial_values import read_matrix
from opscope.cntk.readers.base.htk_files import HtkFile, read_script
from opscope.cntk.readers.base.section_file import read_sections
from opscope.cntk.readers.base.steady_file import SteadyFile
from opscope.cntk.readers.base.words import read_lines
from opscope.cntk.readers.htk.mlf import read_states
from opscope.cntk.readers.image.transforms import read_opencv
from opscope.cntk.readers.uci.format import Columns, read_table
from opscope.cntk.run.value_format import read_labels
from opscope.framework.base.untrusted import opener
from opscope.framework.files.array_files import read_array
from opscope.framework.files.loading import load_parameters
from opscope.framework.files.tensor_file import TensorFile
from opscope.kaldi.tables.streams import Files, check_there, open_reader, open_stream
from opscope.kaldi.tables.windows import WindowedFile
from opscope.nnet3.components.base.initial import read_matrix_file, read_vector_file
from opscope.nnet3.language.config import read_config_text
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.xconfig.lines import split_lines


def _streamed(path: str) -> None:
    with open_stream(path) as file:
        file.read()


READERS: dict[str, Callable[[str], object]] = {
    "read_file": opener.read_file,
    "open_file": lambda path: opener.open_file(path).close(),
    "read_text": opener.read_text,
    "net": opscope.load,
    "tensors": TensorFile,
    "parameters": lambda path: load_parameters(path, opscope.NetBuilder("n")),
    "array": read_array,
    "nnet3 model": Nnet.read,
    "nnet3 rxfilename": open_reader,
    "nnet3 listed": lambda path: Files().read(path, lambda reader: reader.size, listed=True),
    "nnet3 place": lambda path: Files().read(f"{path}:3", lambda reader: reader.size),
    "nnet3 window": WindowedFile,
    "nnet3 stream": _streamed,
    "nnet3 there": check_there,
    "nnet3 config": read_config_text,
    "nnet3 xconfig": split_lines,
    "nnet3 matrix": read_matrix_file,
    "nnet3 vector": read_vector_file,
    "cntk config": load_config,
    "cntk model": open_model,
    "cntk v1 model": read_model,
    "cntk checkpoint": read_checkpoint,
    "cntk initial value": lambda path: read_matrix(path, np.dtype(np.float32)),
    "cntk htk": HtkFile.open,
    "cntk script": read_script,
    "cntk states": read_states,
    "cntk hmms": lambda path: Hmms.read(path, path, ["a"]),
    "cntk lattices": lambda path: LatticeArchive([path], Hmms.__new__(Hmms)),
    "cntk htk lattice": lambda path: read_htk_lattice(path, Hmms.__new__(Hmms)),
    "cntk words": read_lines,
    "cntk word counts": lambda path: count_words(path, "<s>", "</s>"),
    "cntk sections": read_sections,
    "cntk sparse": SteadyFile,
    "cntk table": lambda path: read_table(path, [Columns("x", 0, 1)]),
    "cntk labels": read_labels,
    "cntk means": read_opencv,
}
