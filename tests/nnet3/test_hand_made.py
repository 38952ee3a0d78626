"""Files made by hand that once took for ever, took all memory, or ended in a foreign error."""

import io
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from operations import growth
from opscope.framework.base.errors import FormatError, OpscopeError
from opscope.framework.editing.patterns import name_matches
from opscope.framework.files.array_files import read_arrays
from opscope.framework.ir.desc import NetDesc
from opscope.kaldi.files.context_dependency import (
    ContextDependency,
    Leaf,
    Split,
    new_transition_model,
)
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.fst.files.fst_io import read_fst
from opscope.nnet3.cache.computations import CachingCompiler
from opscope.nnet3.cache.files import read_cache
from opscope.nnet3.components.base.initial import normal
from opscope.nnet3.network.config_check import config_problems
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.xconfig import xconfig_to_config

MANY_DIGITS = "9" * 5000


def config(component, input_dim=4):
    return (
        f"input-node name=input dim={input_dim}\n{component}\noutput-node name=output input=input\n"
    )


@pytest.mark.parametrize(
    "component",
    [
        "component name=a type=AffineComponent input-dim=1000000000 output-dim=1000000000",
        "component name=a type=AffineComponent input-dim=999999 output-dim=999999",
        "component name=a type=LinearComponent input-dim=4 output-dim=1000000000",
        "component name=a type=NaturalGradientPerElementScaleComponent dim=1000000000",
        "component name=a type=NoOpComponent dim=2147483647",
        "component name=a type=ConvolutionComponent input-x-dim=4 input-y-dim=3 "
        "input-z-dim=1000000000 filt-x-dim=2 filt-y-dim=2 filt-x-step=1 filt-y-step=1 "
        "num-filters=2",
        "component name=a type=StatisticsExtractionComponent input-dim=4 input-period=1 "
        "output-period=1000000000",
        "component name=a type=StatisticsPoolingComponent input-dim=9 input-period=1 "
        "left-context=1000000000 right-context=1000000000",
    ],
)
def test_configs_that_ask_for_much(component):
    with pytest.raises(FormatError, match=r"line 2: .*limit"):
        Nnet.from_config_text(config(component))


@pytest.mark.parametrize(
    "component",
    [
        "component name={} type=LinearComponent input-dim=600 output-dim=200",
        "component name={} type=BatchNormComponent dim=30000",
        "component name={} type=FixedAffineComponent input-dim=300 output-dim=200",
        "component name={} type=CompositeComponent num-components=2"
        " component1='type=BatchNormComponent dim=16000'"
        " component2='type=BatchNormComponent dim=16000'",
    ],
)
def test_all_components_of_a_config_together(component, tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIMITS", "fill=1M")
    lines = [component.format(f"c{number}") for number in range(3)]
    with pytest.raises(FormatError, match=r"needs an input node"):
        Nnet.from_config_text(lines[0])
    told = r"line 3.*: .*bytes before it: \d+ bytes, beyond the limit of 1048576.*fill=NUMBER"
    with pytest.raises(FormatError, match=told):
        Nnet.from_config_text("\n".join(lines))
    (tmp_path / "a.config").write_text("\n".join(lines))
    found = [str(problem) for problem in config_problems(tmp_path / "a.config")]
    assert any("fill=NUMBER" in text for text in found)


def test_drawing_takes_little_more_than_what_is_drawn():
    size = 3 << 20
    tracemalloc.start()
    drawn = normal(np.random.default_rng(3), (3, size // 3), 0.5, 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < drawn.nbytes + (9 << 20)  # a piece of doubles
    whole = np.random.default_rng(3).normal(1.0, 0.5, (3, size // 3)).astype(np.float32)
    np.testing.assert_array_equal(drawn, whole)


def test_a_node_of_many_columns():
    with pytest.raises(FormatError, match="dim=1000000000: 1000000 columns are the limit"):
        Nnet.from_config_text(config("", 10**9))


def test_a_limit_is_raised_by_the_switch(monkeypatch):
    text = config("component name=a type=NoOpComponent dim=2000000")
    with pytest.raises(FormatError, match="OPSCOPE_LIMITS|limit"):
        Nnet.from_config_text(text)
    monkeypatch.setenv("OPSCOPE_LIMITS", "columns=3M")
    assert Nnet.from_config_text(text).components["a"].input_dim == 2_000_000


def test_a_network_that_repeats_itself_after_very_long():
    text = "input-node name=input dim=2\noutput-node name=output input=Round(input, 100000000)\n"
    nnet = Nnet.from_config_text(text)
    with pytest.raises(FormatError, match=r"100000000 frames, beyond the limit.*period=NUMBER"):
        nnet.context()


@pytest.mark.parametrize(
    "line",
    [
        f"relu-layer name=a dim={MANY_DIGITS}",
        f"relu-layer name=a dim=3 input=[-{MANY_DIGITS}]",
        f"relu-layer name=a dim=3 input=Offset(-{MANY_DIGITS}, 1)",
        f"stats-layer name=a config=mean(-{MANY_DIGITS}:1:1:{MANY_DIGITS})",
        f"conv-layer name=a height-in=4 height-out=4 num-filters-out=1 time-offsets={MANY_DIGITS}",
    ],
)
def test_integers_of_many_digits_in_an_xconfig(line):
    with pytest.raises(OpscopeError) as failed:
        Nnet.from_config_text(xconfig_to_config(f"input name=input dim=4\n{line}\n"))
    assert max(map(len, str(failed.value).splitlines())) <= 500


@pytest.mark.parametrize("text", ["Offset(input, {})", "Round(input, {})", "Const(1, {})"])
def test_integers_of_many_digits_in_a_descriptor(text):
    line = f"output-node name=output input={text.format(MANY_DIGITS)}"
    with pytest.raises(FormatError, match="line 2"):
        Nnet.from_config_text(f"input-node name=input dim=4\n{line}\n")


@pytest.mark.parametrize(
    "line",
    [f"0 1 {MANY_DIGITS} 1", f"0 1 {10**400} 1", f"{MANY_DIGITS} 1 1 1", f"{10**30}", "0 1 -1 1"],
)
def test_labels_and_states_of_fsts(line):
    with pytest.raises(FormatError, match="byte"):
        read_fst(Reader(f"{line}\n1\n\n".encode(), binary=False))


def test_patterns_with_many_stars():
    assert not name_matches("a" * 5000, "*a" * 40 + "*b")
    assert name_matches("a" * 50 + "b", "*a" * 40 + "*b")
    for name, pattern, wanted in (
        ("tdnn1.affine", "tdnn*.affine", True),
        ("tdnn.affine", "*.affine", True),
        ("ab", "ab*b", False),
        ("abb", "ab*b", True),
        ("x", "*", True),
        ("a*b", "a.b", False),
        ("aXbXc", "a*b*c", True),
        ("", "", True),
    ):
        assert name_matches(name, pattern) is wanted, (name, pattern)


TOPOLOGY = b"""<Topology> <TopologyEntry> <ForPhones> 1 2 3 4 </ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 </State> </TopologyEntry> </Topology> """


def deep_tree(width):
    """A tree that asks about every phone of a window, and has two outputs at each end."""
    tree = Split(-1, frozenset({0}), Leaf(0), Leaf(1))
    for place in range(width):
        other = Split(-1, frozenset({0}), Leaf(2 * place + 2), Leaf(2 * place + 3))
        tree = Split(place, frozenset({1}), tree, other)
    return ContextDependency(width, 0, tree)


def test_a_tree_with_endless_windows(monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIMITS", "alternatives=20000")
    with pytest.raises(FormatError, match=r"windows of phones.*alternatives=NUMBER"):
        new_transition_model(deep_tree(40), Reader(TOPOLOGY, binary=False))


def test_a_window_that_the_tree_does_not_ask_about():
    near = deep_tree(3)
    wide = ContextDependency(1000, 0, near.tree)
    models = [new_transition_model(t, Reader(TOPOLOGY, binary=False)) for t in (near, wide)]
    assert np.array_equal(models[0].tuples, models[1].tuples)


def test_text_posteriors_take_operations_in_proportion():
    def reading(frames):
        text = b"[ 1 0.5 ] " * frames + b"\n"
        return lambda: Posterior.read(Reader(text, binary=False))

    assert len(reading(50)()) == 50
    assert growth(reading, 300) < 2.2


@pytest.mark.parametrize("binary", [False, True])
def test_a_cache_of_nested_nets(binary):
    nnet = Nnet.from_config_text(config("component name=a type=NoOpComponent dim=4"))
    levels = 5000
    opening = 'ops { attrs { key: "net" value { net { '
    data = (opening * levels + "} } } } " * levels).encode()
    if binary:
        inner = NetDesc(format_version=1)
        data = inner.SerializeToString()
        for _ in range(300):  # field 10 of Attr, in a map entry of field 4 of OpDesc, in field 3
            for tag in (b"\x52", b"\x12", b"\x22", b"\x1a"):
                data = tag + _length(len(data)) + data
        data = b"\0B" + data
    with pytest.raises(FormatError):
        read_cache(CachingCompiler(nnet), nnet, Reader(data))


def _length(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def test_an_archive_of_arrays_that_unpacks_to_much(tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIMITS", "unpack=64M")
    array = io.BytesIO()
    np.save(array, np.zeros(100 << 20, np.uint8))
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", array.getvalue())
    assert (tmp_path / "x.npz").stat().st_size < 1 << 20
    with pytest.raises(FormatError, match=r"x\.npz: .*unpacked.*unpack=NUMBER"):
        read_arrays(str(tmp_path / "x.npz"))
    monkeypatch.setenv("OPSCOPE_LIMITS", "unpack=128M")
    assert list(read_arrays(str(tmp_path / "x.npz"))) == ["x"]


def test_an_archive_of_arrays_in_proportion_to_the_file(tmp_path, monkeypatch):
    """What is no more than a hundred times the file needs no limit."""
    monkeypatch.setenv("OPSCOPE_LIMITS", "unpack=1K")
    arrays = {"x": np.random.default_rng(0).normal(size=2000), "zeros": np.zeros(20_000)}
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **arrays)
        found = read_arrays(str(tmp_path / "x.npz"))
        assert all(np.array_equal(found[name], arrays[name]) for name in arrays)


def test_an_array_of_an_archive_that_is_not_there(tmp_path):
    array = io.BytesIO()
    np.save(array, np.zeros(100))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", array.getvalue()[:-8])
        archive.writestr("note.txt", "not an array")
    found = read_arrays(str(tmp_path / "x.npz"))
    assert list(found) == ["x"]
    with pytest.raises(FormatError, match=r"x.npz: x.npy: .*float64 \[100\] takes 800 .* 792 are"):
        found["x"]
    with pytest.warns(UserWarning, match="Duplicate"):
        with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive:
            archive.writestr("x.npy", array.getvalue())
    with pytest.raises(FormatError, match="x.npz: a file is in it twice"):
        read_arrays(str(tmp_path / "x.npz"))


def test_the_directory_of_an_archive_is_read_once(tmp_path, monkeypatch):
    np.savez(tmp_path / "x.npz", **{f"a{number}": np.full(2, number) for number in range(50)})
    read = []
    directory = zipfile.ZipFile._RealGetContents
    monkeypatch.setattr(
        zipfile.ZipFile, "_RealGetContents", lambda self: (read.append(1), directory(self))
    )
    found = dict(read_arrays(str(tmp_path / "x.npz")))
    assert [found[f"a{number}"][0] for number in range(50)] == list(range(50))
    assert len(read) == 1


def test_arrays_of_a_folder_are_read_when_they_are_asked_for(tmp_path):
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.full(3, ord(name)))
    (tmp_path / "broken.npy").write_bytes(b"no array")
    os.mkfifo(tmp_path / "fifo.npy")
    os.symlink("/dev/zero", tmp_path / "zero.npy")
    found = read_arrays(str(tmp_path))
    assert list(found) == ["a", "b", "broken", "fifo", "zero"] and len(found) == 5
    assert found["a"].tolist() == [97] * 3 and "b" in found and "c" not in found
    assert found["a"] is found["a"]
    with pytest.raises(FormatError, match="broken.npy: no NumPy file: neither .npy nor .npz"):
        found["broken"]
    for name in ("fifo", "zero"):
        with pytest.raises(FormatError, match=f"{name}.npy: a pipe or a device, not a file"):
            found[name]


def test_an_array_whose_header_asks_for_much(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(4))
    data = (tmp_path / "x.npy").read_bytes()
    shape = str((10**15,)).encode()
    assert b"(4,), }" in data
    (tmp_path / "x.npy").write_bytes(
        data.replace(b"(4,), }" + b" " * (len(shape) - 4), shape + b", }")
    )
    with pytest.raises(FormatError, match=r"x.npy: no NumPy file: float64 .* 32 are there"):
        dict(read_arrays(str(tmp_path)))


@pytest.mark.parametrize("count", [float("inf"), float("nan"), 1e300])
def test_statistics_that_are_no_number(count):
    text = config("component name=a type=BackpropTruncationComponent dim=4")
    nnet = Nnet.from_config_text(text)
    nnet.components["a"].count_zeroing_boundaries = count
    assert f"count-zeroing-boundaries={count:.0f}" in nnet.info()
