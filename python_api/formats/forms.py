"""The forms that a conversion can write, and which of them a name means."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from ...framework.base.errors import FormatError, nearest

_MOST_SHOWN = 20


@dataclass(frozen=True)
class Form:
    """A form of files that is written.

    Attributes:
        name: short, for `--to`. title: for people.
        suffixes: of names that mean it. folder: whether it is a folder of files.
    """

    name: str
    title: str
    suffixes: tuple[str, ...] = ()
    folder: bool = False

    @property
    def usage(self) -> str:
        """What a user writes to get it."""
        how = ", ".join(self.suffixes) or ("a folder" if self.folder else "")
        return f"{self.name} ({how})" if how else self.name


_ALL = (
    Form("raw", "Kaldi nnet3 network (raw)", (".raw",)),
    Form("mdl", "Kaldi nnet3 acoustic model (mdl)", (".mdl",)),
    Form("config", "Kaldi nnet3 config", (".config",)),
    Form("cntk", "CNTK model (version 1)", (".dnn", ".cmf", ".model")),
    Form("net", "opscope net, in the words of its source", (".pb",)),
    Form("operators", "opscope net of operators that run", (".pb",)),
    Form("onnx", "ONNX model", (".onnx",)),
    Form("torch", "PyTorch module", (), folder=True),
    Form("python", "NetBuilder code", (".py",)),
    Form("archive", "Kaldi archive", (".ark",)),
    Form("npz", "NumPy arrays", (".npz",)),
    Form("npy", "NumPy array", (".npy",)),
    Form("safetensors", "safetensors file", (".safetensors",)),
    Form("htk", "HTK parameter file", (".fea", ".htk", ".mfc")),
    Form("htk-folder", "folder of HTK parameter files with a list", (), folder=True),
    Form("mlf", "HTK master label file", (".mlf",)),
)
FORMS = {form.name: form for form in _ALL}
"""All forms by name."""


def form_of(target: str, to: str | None, possible: Collection[str], source: str) -> Form:
    """The form that is meant.

    Args:
        target: the name of the file or folder. to: the name of a form; None: as `target` tells.
        possible: the forms that the source can become.
        source: what the source is, for errors.

    Raises:
        FormatError: there is no such form, the source cannot become it, or `target` does not say
            which one is meant; the message lists the choices.
    """
    choices = [FORMS[name] for name in FORMS if name in possible]
    listed = "; ".join(form.usage for form in choices[:_MOST_SHOWN])
    if to is not None:
        if to not in FORMS:
            raise FormatError(
                f"there is no form {to!r}{nearest(to, FORMS)}; {source} becomes {listed}"
            )
        if to not in possible:
            raise FormatError(
                f"{source} does not become {FORMS[to].title} ({to}); it becomes {listed}"
            )
        return FORMS[to]
    suffix = os.path.splitext(target)[1].lower()
    folder = target.endswith(("/", os.sep)) or os.path.isdir(target)
    fits = [form for form in choices if (form.folder if folder else suffix in form.suffixes)]
    if len(fits) == 1:
        return fits[0]
    if fits:
        several = " or ".join(f"--to {form.name}, {form.title}" for form in fits)
        raise FormatError(f"{target}: the name does not say what is wanted: {several}")
    known = [form for form in FORMS.values() if suffix and suffix in form.suffixes]
    if known and not folder:
        raise FormatError(
            f"{target}: {source} does not become {known[0].title}; it becomes {listed}"
        )
    raise FormatError(f"{target}: the name must tell the form, or --to; {source} becomes {listed}")
