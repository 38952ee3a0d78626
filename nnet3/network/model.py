"""Acoustic models (`.mdl`): a transition model, a network, its contexts and priors.

The bytes of the transition model stay as they were read. Source: Kaldi's `nnet3/am-nnet-simple.cc`.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import ShapeError, check_kind
from ...framework.base.files.atomic import PathLike
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.transition_model import convert
from ..components.base.summary import number
from .model_file import check_priors, read_model_file
from .nnet import Nnet


class AmNnetSimple:
    """A network with a transition model, contexts and priors: Kaldi's classes TransitionModel (as
    bytes) and AmNnetSimple.

    Attributes:
        transition_model: its bytes as the file has them.
        binary: the form of those bytes.
        nnet: the network; it must be simple, see `Nnet.is_simple`.
        left_context, right_context: frames of context; `set_context` finds them.
        priors: float32 vector, empty or as long as the output is wide.
    """

    def __init__(self, nnet: Nnet, transition_model: bytes, binary: bool = True) -> None:
        check_kind(nnet, Nnet, "the network")
        self.transition_model = transition_model
        self.binary = binary
        self.nnet = nnet
        self.priors = np.zeros(0, np.float32)
        self.left_context = self.right_context = 0

    @classmethod
    def read(cls, path: PathLike) -> AmNnetSimple:
        """Read an acoustic model, binary or text.

        Raises:
            FormatError: the file cannot be read, is none, or is damaged.
        """
        return cls.read_from(Reader(path))

    @classmethod
    def read_from(cls, reader: Reader) -> AmNnetSimple:
        """Read an acoustic model from the opening token of its transition model on."""
        file = read_model_file(reader, Nnet.read_from)
        model = cls(file.nnet, file.transition_model, reader.binary)
        model.left_context = file.left_context
        model.right_context = file.right_context
        model.priors = file.priors
        return model

    def write(self, path: PathLike, binary: bool | None = None) -> None:
        """Write it; a model that was read and not changed gives the same bytes.

        Args:
            path: of the file.
            binary: the form; by default the transition model's form, the only one possible.

        Raises:
            ShapeError: the transition model has the other form.
            SaveError: the file cannot be written.
        """
        writer = Writer(self.binary if binary is None else binary)
        self.write_to(writer)
        writer.save(path)

    def write_to(self, writer: Writer) -> None:
        """Write transition model, network, contexts and priors."""
        if writer.binary != self.binary:
            form = "binary" if self.binary else "text"
            raise ShapeError(f"the transition model is kept as it was read, which is {form}")
        writer.write_raw(self.transition_model)
        self.nnet.write_to(writer)
        writer.write_token("<LeftContext>")
        writer.write_int32(self.left_context)
        writer.write_token("<RightContext>")
        writer.write_int32(self.right_context)
        writer.write_token("<Priors>")
        writer.write_vector(self.priors)

    def set_form(self, binary: bool) -> None:
        """Keep the transition model in binary form, or as text.

        Raises:
            FormatError: its bytes are damaged.
        """
        if binary != self.binary:
            self.transition_model = convert(self.transition_model, binary, from_binary=self.binary)
            self.binary = binary

    def set_context(self) -> None:
        """Find the contexts of the network, after it was changed.

        Raises:
            ShapeError: it is not simple.
        """
        self.left_context, self.right_context = self.nnet.context()

    def set_nnet(self, nnet: Nnet) -> None:
        """Take another network; priors of another size are dropped, as Kaldi does.

        Raises:
            ShapeError: it is not simple.
        """
        self.nnet = nnet
        self.set_context()
        if self.priors.size not in (0, nnet.output_dim("output")):
            self.priors = np.zeros(0, np.float32)

    def set_priors(self, priors: np.ndarray) -> None:
        """Take priors, or none (an empty vector).

        Raises:
            ShapeError: they are not as many as the output is wide.
        """
        check_priors(priors, self.nnet)
        self.priors = np.asarray(priors, np.float32)

    def info(self, with_singular_values: bool = False) -> str:
        """The text that `nnet3-am-info` prints; see `Nnet.info`."""
        text = (
            f"input-dim: {self.nnet.input_dim('input')}\n"
            f"ivector-dim: {self.nnet.input_dim('ivector')}\n"
            f"num-pdfs: {self.nnet.output_dim('output')}\n"
            f"prior-dimension: {self.priors.size}\n"
        )
        if self.priors.size:
            text += (
                f"prior-sum: {number(self.priors.sum())}\n"
                f"prior-min: {number(self.priors.min())}\n"
                f"prior-max: {number(self.priors.max())}\n"
            )
        return f"{text}# Nnet info follows.\n{self.nnet.info(with_singular_values)}"

    def _repr_svg_(self) -> str | None:
        """The network's picture, for notebooks."""
        return self.nnet._repr_svg_()

    def _repr_html_(self) -> str:
        """The network's picture and summary, for notebooks."""
        return self.nnet._repr_html_()
