"""Conversions to folders with a PyTorch module, and of such folders back into model files."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from ...bridges.recognize.recognizing import kind_of
from ...bridges.torch.folder import MODEL_FILE, STATE_FILE, config_in
from ...bridges.torch.returning import weights_from_torch
from ...bridges.torch.to_torch import Model, to_torch
from ...cntk.network.initialize import initialize
from ...cntk.network.network import Network
from ...cntk.run.runtime import CntkNet
from ...framework.base.errors import FormatError, OpscopeError, RunError
from ...framework.base.files.atomic import make_folder_of
from ...framework.base.untrusted.opener import read_file
from ...framework.files.tensor_file import TensorFile
from ...nnet3.network.for_inference import nnet_of
from . import losses
from .forms import FORMS
from .of_nnet3 import model_of, subsampling
from .report import Job
from .sources import DRAWN

_SECONDS = 600
_FORM_OF = {"nnet3": "raw", "acoustic model": "mdl", "model": "cntk"}
"""The form that a model file has, by its kind."""


def from_nnet3(job: Job) -> None:
    """A folder with the module of a network of Kaldi's."""
    model = model_of(job)
    factor = subsampling(job)
    nnet = nnet_of(model)
    job.lose(*losses.of_model(model), *losses.of_outputs(nnet))
    if any(component.is_updatable for component in nnet.components.values()):
        job.lose("settings of Kaldi's trainer")
    chosen = job.options.outputs
    others = [node.name for node in nnet.outputs() if chosen and node.name not in chosen]
    job.lose(f"other outputs: {', '.join(others)}" if others else "")
    origin = job.report.source if job.kind in _FORM_OF else nnet
    _write(job, nnet, origin, {"frame_subsampling_factor": factor})


def from_cntk(job: Job) -> None:
    """A folder with the module of a network of CNTK."""
    assert isinstance(job.value, Network)
    if job.kind in DRAWN:
        job.report.facts.append("its parameters are drawn: it holds none")
        initialize(job.value)
    job.lose(*losses.of_network(job.value, dropout=False), *losses.of_precision(job.value))
    net = CntkNet(job.value)
    _write(job, net, job.report.source if job.kind in _FORM_OF else net, {})


def _write(job: Job, model: Model, origin: Model, options: Mapping[str, Any]) -> None:
    """Write the folder; its own check runs before that, beside it, where torch is installed.

    Args:
        model: the network. origin: the same, or the file that holds it, to which weights return.
    """
    kwargs: dict[str, Any] = {"outputs": job.options.outputs or None, **options}
    if find_spec("torch") is not None:
        with _folder_beside(job) as folder:
            to_torch(model, folder, **kwargs)
            _run_check(job, folder)
    else:
        job.report.note = "torch is not installed; run check.py in the folder where it is"
    module = to_torch(origin, job.target, **kwargs)
    back = f"; weights return: --original {origin}" if isinstance(origin, str) else ""
    job.report.facts.append(f"{module.parameters} parameters{back}")
    job.report.facts += [f"note: {note}" for note in module.notes]


def _folder_beside(job: Job) -> tempfile.TemporaryDirectory[str]:
    """A folder for a while, on the disk of the target."""
    target = os.path.abspath(job.target)
    make_folder_of(target)
    return tempfile.TemporaryDirectory(prefix=".", dir=os.path.dirname(target))


def _run_check(job: Job, folder: str) -> None:
    """Run `check.py` of a folder that was just written here, in a process of its own.

    Raises:
        RunError: the module's outputs are others.
    """
    words = [sys.executable, "-P", os.path.join(folder, "check.py")]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        job.report.note = f"check.py did not run: {error}"
        return
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise RunError(f"{job.target}: not written: its check fails: {lines[-1]}")
    errors = list(_differences(done.stdout))
    job.report.error = max(errors, default=0.0)
    job.report.cases = len(errors)
    job.report.note = "by check.py in PyTorch"


def _differences(text: str) -> Iterator[float]:
    for line in text.splitlines():
        _, _, rest = line.partition("largest difference ")
        with contextlib.suppress(ValueError):
            yield float(rest.split(",")[0])


def to_model(job: Job) -> None:
    """The model file that a module was made of, with the module's weights.

    It is written beside the target and becomes it when it is seen to hold all tensors, so that an
    older target stays where something is wrong.

    Raises:
        OpscopeError: no original is given. FormatError: it is of another form than the target.
        RunError: a module made of the result would be another one.
    """
    source, original = job.report.source, job.options.original
    if original is None:
        raise OpscopeError(f"{source}: --original wants the model file that it was made of")
    form = _FORM_OF.get(kind_of(original), "")
    if form and FORMS[form].title != job.report.became:
        raise FormatError(
            f"{job.target}: would be a {job.report.became}, but weights return into the form of"
            f" the original, and {original} is a {FORMS[form].title}: name the target"
            f" NAME{FORMS[form].suffixes[0]}"
        )
    with _folder_beside(job) as folder:
        converted = os.path.join(folder, os.path.basename(job.target))
        changed = weights_from_torch(source, original, converted)
        _compare_modules(job, converted, os.path.join(folder, "module"))
        os.replace(converted, job.target)
    what = "parameters" if form == "cntk" else "components"
    job.report.facts.append(f"{len(changed)} {what} have other weights than {original}")
    job.report.note = "all tensors compared; for outputs run the folder's check.py"


def _compare_modules(job: Job, path: str, folder: str) -> None:
    """Compare the module of a model that was made with the one that it was made of."""
    config, _ = config_in(job.report.source)
    options: dict[str, Any] = {"outputs": list(config["outputs"])}
    if config["model_type"] == "nnet3":
        options["frame_subsampling_factor"] = config["frame_subsampling_factor"]
        options["whole"] = config.get("whole", False)
    to_torch(path, folder, **options)
    again, held = (TensorFile(os.path.join(f, STATE_FILE)) for f in (folder, job.report.source))
    for name in again:
        if not name.endswith("num_batches_tracked"):
            job.compare(name, again.read(name), held.read(name))
    texts = (_forward(os.path.join(f, MODEL_FILE)) for f in (folder, job.report.source))
    if len(set(texts)) > 1:
        job.report.facts.append(
            f"{os.path.join(job.report.source, MODEL_FILE)} was changed by hand: the model file"
            " computes what to-torch wrote, with the new weights"
        )


def _forward(path: str) -> bytes:
    """The source of a module after its title, which names a file."""
    return read_file(path).partition(b"\n")[2]
