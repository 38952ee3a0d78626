"""`opscope.convert(source, target)`: files from one format to another."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ...framework.base.errors import VariableError
from ...framework.base.files.atomic import PathLike, refuse_existing, refuse_sources
from ...framework.files.saved import paths_of
from .forms import FORMS, Form, form_of
from .report import BOUND, VALUES, ConversionReport, Job, Options
from .sources import Source, source_of
from .table import TABLE_OF, forms_from


def convert(
    source: PathLike,
    target: PathLike,
    to: str | None = None,
    *,
    outputs: Sequence[str] | str = (),
    context: Mapping[str, tuple[int, int]] | None = None,
    transition_model: PathLike | None = None,
    text: bool = False,
    frame_subsampling_factor: int | None = None,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    original: PathLike | None = None,
    states: PathLike | None = None,
    bound: float = BOUND,
    overwrite: bool = False,
) -> ConversionReport:
    """Convert a model or data from one format to another.

        print(opscope.convert("final.mdl", "final.onnx"))

    What the source is, is known by its content. The result is run on random inputs, or compared
    number by number, before it is there; what would compute something else is not written.
    `opscope convert --list` prints the table of conversions.

    Args:
        source: of a file or folder.
        target: the file or folder to write; not the source.
        to: the form, one of `FORMS`; None: as the name of the target tells.
        outputs: names of nodes or variables that become the outputs.
        context: of CNTK's inputs by name, the frames before and after that their samples hold;
            an empty name is the main input.
        transition_model: a file that begins with one, for an acoustic model of Kaldi's.
        text: whether files of Kaldi's are written as text.
        frame_subsampling_factor: frames for a row of output; None: as the folder of a Vosk model
            says, else 1.
        shapes: of an ONNX model's inputs by name; -1, or a name, is a size that may vary.
        original: the model file that a folder of PyTorch was made of.
        states: a file with the names of states, a line each, for labels.
        bound: the largest error, of values above 1 relative to them.
        overwrite: whether what is there under the name of the target is replaced. The source and
            its companion files never are.

    Returns:
        What was written, what is lost, and the maximum error; `print` shows it.

    Raises:
        FormatError: the source cannot be read or converted; the target does not say what is wanted.
        RunError: the result would not compute the same.
        OpscopeError: an option has no meaning; a part of the model has no counterpart.
        SaveError: the target is the source, is there already, or cannot be written.
    """
    if not isinstance(source, (str, os.PathLike)) or not isinstance(target, (str, os.PathLike)):
        raise VariableError("convert wants the names of two files")
    options = Options(
        outputs=(outputs,) if isinstance(outputs, str) else tuple(outputs),
        context=dict(context or {}),
        transition_model=None if transition_model is None else os.fspath(transition_model),
        text=text,
        frame_subsampling_factor=frame_subsampling_factor,
        shapes={name: tuple(shape) for name, shape in (shapes or {}).items()},
        original=None if original is None else os.fspath(original),
        states=None if states is None else os.fspath(states),
        bound=bound,
    )
    origin = source_of(os.fspath(source))
    path = os.fspath(target)
    form = form_of(path, to, forms_from(origin.family), f"{origin.path} ({origin.title})")
    entry = TABLE_OF[origin.family, form.name]
    options.check(entry.options, f"{origin.title} -> {form.title}")
    _refuse_targets(origin, path, form, options, overwrite)
    report = ConversionReport(origin.path, path, origin.title, form.title)
    entry.function(Job(report, options, origin.read(), origin.kind))
    return report


def _refuse_targets(
    source: Source, target: str, form: Form, options: Options, overwrite: bool
) -> None:
    """Refuse a target that is, or lies beside and belongs to, what is read; or that is there."""
    stem = os.path.splitext(target)[0]
    written = [target]
    if form.name == "python":
        written.append(stem + VALUES)
    elif form.name in ("net", "operators"):
        written += [*paths_of(target)]
    read = [*source.files(), options.original, options.transition_model, options.states]
    for one in written:
        refuse_sources(one, [other for other in read if other is not None])
    for one in written if not overwrite else ():
        refuse_existing(one)


__all__ = ["BOUND", "FORMS", "ConversionReport", "convert"]
