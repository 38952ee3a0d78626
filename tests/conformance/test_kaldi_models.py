"""Component and network files of Kaldi: byte-identical copies, `info`, configs, parameters.

Runs over the folder named by OPSCOPE_KALDI_DATA; skips where that is missing.
"""

import re

import numpy as np
import pytest

from kaldi_data import FOLDER, need
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.nnet3.components import Component
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet

SINGLE = sorted(path.parent.name for path in FOLDER.glob("components/*/component.bin"))
RANDOM = sorted(path.parent.name for path in FOLDER.glob("random_nets/*/model.raw"))
TRAINED = sorted(path.parent.name for path in FOLDER.glob("trained/*/model.raw"))
NETS = sorted(
    str(path.relative_to(FOLDER))
    for pattern in ("**/*.raw", "*/*/model.txt", "formats/*.mdl")
    for path in FOLDER.glob(pattern)
)
NONE = "no reference results of Kaldi: see OPSCOPE_KALDI_DATA"
NUMBER = re.compile(r"(-?nan|[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+))")
NOISE = 1e-6  # means so small are the rounding errors of a sum, whose order is Kaldi's BLAS's

pytestmark = pytest.mark.skipif(not SINGLE, reason=NONE)


def archive(path):
    """The vectors and matrices of a binary archive by key."""
    reader, entries = Reader(path.read_bytes(), binary=True), {}
    while not reader.at_end():
        key = reader.read_token()
        reader.read_header()
        is_vector = reader.peek_token() in ("FV", "DV")
        entries[key] = reader.read_vector() if is_vector else reader.read_matrix()
    return entries


def copied(read, path):
    """(what `read` makes of the file, its bytes, the bytes written back)."""
    reader = Reader(path)
    thing = read(reader)
    writer = Writer(reader.binary)
    (thing.write if isinstance(thing, Component) else thing.write_to)(writer)
    return thing, path.read_bytes(), writer.getvalue()


def assert_same_info(got, wanted):
    """Equal but for the last digit that is printed of a number, and for rounding noise."""
    got, wanted = NUMBER.split(got), NUMBER.split(wanted)
    assert got[::2] == wanted[::2]
    for a, b in zip(got[1::2], wanted[1::2], strict=True):
        if a != b:
            digits = len(re.sub(r"e.*|[-.]|\b0*\.?0*", "", b))
            assert float(a) == pytest.approx(float(b), rel=2 * 10.0 ** (1 - digits), abs=NOISE)


@pytest.mark.parametrize("case", SINGLE)
@pytest.mark.parametrize("form", ["bin", "txt"])
def test_components(case, form):
    folder = need("components", case)
    component, data, written = copied(Component.read_new, folder / f"component.{form}")
    assert written == data
    info, properties = folder.joinpath("info.txt").read_text().rstrip("\n").split("\n")
    assert f"properties {int(component.properties)}" == properties
    if form == "bin":
        assert component.info() == info
    if (folder / "grad.ark").exists():
        params = archive(folder / "grad.ark")["params"].ravel()
        vector = component.vectorize()
        np.testing.assert_allclose(vector, params, rtol=0 if form == "bin" else 1e-6)
        component.unvectorize(params)
        np.testing.assert_array_equal(component.vectorize(), params)


@pytest.mark.parametrize("name", NETS)
def test_networks_are_copied_byte_for_byte(name, tmp_path):
    path = need(name)
    read = AmNnetSimple.read_from if path.suffix == ".mdl" else Nnet.read_from
    thing, data, written = copied(read, path)
    assert written == data
    nnet = thing.nnet if path.suffix == ".mdl" else thing
    assert Nnet.read(path).config_lines() == nnet.config_lines()
    if path.suffix == ".mdl":
        assert (thing.left_context, thing.right_context) == nnet.context()
    back = Nnet.from_desc(nnet.to_desc(), nnet.arrays())
    whole = Writer(data.startswith(b"\0B"))
    back.write_to(whole)
    assert whole.getvalue().removeprefix(b"\0B") in data


@pytest.mark.parametrize("case", RANDOM)
def test_random_networks(case):
    folder = need("random_nets", case)
    nnet = Nnet.read(folder / "model.raw")
    info, wanted = nnet.info(), (folder / "info.txt").read_text()
    assert_same_info(info, "".join(wanted.splitlines(True)[: info.count("\n")]))
    np.testing.assert_array_equal(
        nnet.vectorize(), archive(folder / "grad.ark")["model_params"].ravel()
    )


@pytest.mark.parametrize("case", RANDOM)
def test_random_networks_from_configs(case):
    folder = need("random_nets", case)
    wanted = Nnet.read(folder / "model.raw")
    paths = sorted(folder.glob("config.*"), key=lambda path: int(path.suffix[1:]))
    nnet = Nnet.from_configs(paths, rng=0)
    assert nnet.config_lines(dims=True) == wanted.config_lines(dims=True)
    assert list(nnet.components) == list(wanted.components)
    for a, b in zip(nnet.components.values(), wanted.components.values(), strict=True):
        assert a.type == b.type
        assert (a.properties, a.num_parameters) == (b.properties, b.num_parameters)
        assert settings(a) == settings(b)


def settings(component):
    """Everything that is not random: values, and the shapes of arrays."""
    found = {}
    for field in component.fields:
        for attr in field.attrs:
            value = getattr(component, attr)
            if field.kind.name == "components":
                found[attr] = [settings(part) for part in value]
            elif isinstance(value, np.ndarray):
                found[attr] = (value.shape, value.dtype)
            else:
                found[attr] = value
    return found


@pytest.mark.parametrize("case", TRAINED)
def test_trained_networks(case):
    folder = need("trained", case)
    assert_same_info(Nnet.read(folder / "model.raw").info(), (folder / "info.txt").read_text())
