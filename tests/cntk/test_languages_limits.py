"""CNTK's languages: short texts that ask for much end in an error, long ones take linear time."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from operations import growth, operations
from opscope.cntk.base.text import Source
from opscope.cntk.brainscript.build import build_network, evaluate_text
from opscope.cntk.config.files import load_config, parse_config, read_source
from opscope.cntk.config.value import ConfigArray, parse_double
from opscope.cntk.mel.parse import parse_mel
from opscope.cntk.ndl.builder import build_ndl_file
from opscope.cntk.ndl.parse import parse_ndl
from opscope.cntk.network.initialize import initialize
from opscope.cntk.network.network import Network
from opscope.cntk.network.standard.settings import SimpleNetworkSettings
from opscope.cntk.network.standard.simple_builder import build_simple_network
from opscope.cntk.programs.check import check_file
from opscope.framework.base.errors import FormatError, OpscopeError, nearest

SMALL = "steps=20000,nodes=1000,text=20000"  # limits, so that texts soon ask for too much
MOST = 1_000_000  # operations until they are told so


def chained(first: str, item: str, count: int) -> str:
    """A record whose members need each other: `{n}` is the number of one, `{m}` of the next."""
    members = [f"s0 = {first}"]
    members += [f"s{m + 1} = {item.replace('{n}', str(m))}" for m in range(count)]
    return f"[ {' ; '.join(members)} ].s{count}"


def network(members: str) -> str:
    return f"(new ComputationNetwork {{ x = Input {{3}} ; {members} ; outputNodes = (z) }})"


def failing(call: Callable[[], object]) -> str:
    """The message of a call that must fail, and may not work long before that."""
    told: list[str] = []

    def run() -> None:
        with pytest.raises(OpscopeError) as caught:
            call()
        told.append(str(caught.value))

    evaluate_text("1")  # reads the library
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSCOPE_LIMITS", SMALL)
        assert operations(run) < MOST
    return told[0]


# --- BrainScript: what a text may ask for

DOUBLING = "[ d (s, n) = if n == 0 then s else d (s + s, n - 1) ; s = d ('x', 13) ; "


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[ f (n) = if n < 2 then n else f (n - 1) + f (n - 2) ; r = f (40) ].r", "steps"),
        (chained("'x'", "s{n} + s{n}", 40), "a string: 32768 characters"),
        (f"Format ({chained('1', '[| s{n} ; s{n} |]', 40)}, '')", "characters"),
        (f"Format ({chained('1', '[ a = s{n} ; b = s{n} ]', 40)}, '')", "characters"),
        ("[ a = array [0..1000000000] (i => i) ; r = a[3] ].r", "1000000001 elements"),
        (f"{DOUBLING} a = array [0..99] (i => s + 'b') ; r = Format (a, '') ].r", "char"),
        (
            "[ a = array [0..4000] (i => i) ; f (n) = Length (a << 1) + f (n - 1) ; r = f (9) ].r",
            "steps",
        ),
    ],
)
def test_evaluation_is_bounded(text: str, told: str) -> None:
    message = failing(lambda: evaluate_text(text, "test"))
    assert message.startswith("test:1:")
    assert told in message


@pytest.mark.parametrize("first", ["[||]", "[| 1 |]"])
def test_arrays_that_double_are_bounded(first: str) -> None:
    dims = chained(first, "[| s{n} ; s{n} |]", 40)
    message = failing(lambda: evaluate_text(f"new TensorShape [ dims = {dims} ]", "test"))
    assert "beyond the limit" in message


@pytest.mark.parametrize(
    "members",
    [
        "f (n) = if n == 0 then x else f (n - 1) + f (n - 1) ; z = f (40)",
        "z = LayerStack {1000000000, i => DenseLayer {3}} (x)",
        "z = Splice (array [0..999999] (i => x))",
        "z = " + " + ".join(["x"] * 1_000),  # whose names take hundreds of megabytes
    ],
)
def test_networks_are_bounded(members: str) -> None:
    assert "beyond the limit" in failing(lambda: build_network(network(members), "test"))


def test_merged_records_are_bounded() -> None:
    members = " ; ".join(f"m{i} = 1" for i in range(200))
    text = f"[ a = [ {members} ] ; r = (a {'+ [ q = 1 ] ' * 300}).q ].r"
    assert "steps" in failing(lambda: evaluate_text(text, "test"))


CLONE = 'BS.Network.CloneFunction (x, {}, parameters = "learnable")'


def test_clones_are_bounded() -> None:
    doubled = " ; ".join(f"y{i + 1} = {CLONE.format(f'y{i}')} (y{i})" for i in range(40))
    message = failing(lambda: build_network(network(f"y0 = Exp (x) ; {doubled} ; z = y40")))
    assert "steps" in message


def test_clones_in_linear_time() -> None:
    """The nodes to copy were looked for in as many rounds as there are nodes in a row."""

    def make(depth: int) -> Callable[[], object]:
        chain = " ; ".join(f"y{i + 1} = Exp (y{i})" for i in range(depth))
        text = network(f"y0 = x ; {chain} ; z = {CLONE.format(f'y{depth}')} (x)")
        return lambda: build_network(text)

    assert growth(make, 100) < 2.3


def test_changes_of_changes_are_bounded() -> None:
    members = "".join(f"b{i + 1} = b{i} + [ a.c = {i} ]\n" for i in range(200))
    text = f"[ b0 = [ a = [ c = 1 ] ]\n{members} r = b200.a.c ].r"
    assert "steps" in failing(lambda: evaluate_text(text, "test"))


def test_the_limit_of_steps_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[ f (n) = if n == 0 then 0 else 1 + f (n - 1) ; r = f (500) ].r"
    assert evaluate_text(text) == 500
    monkeypatch.setenv("OPSCOPE_LIMITS", "steps=1K")
    with pytest.raises(FormatError, match="steps=NUMBER"):
        evaluate_text(text)


def test_wrong_members_of_a_network_are_told_up_to_a_number() -> None:
    members = " ; ".join(f"y{i} = missing{i}" for i in range(500))
    with pytest.raises(OpscopeError, match="missing") as caught:
        build_network(network(f"{members} ; z = x"))
    assert len(caught.value.others) == 49  # type: ignore[attr-defined]


def test_nodes_of_one_name_in_linear_time() -> None:
    def build(count: int) -> Callable[[], object]:
        text = network(f"f (i) = x .* 2 ; z = Splice (array [0..{count}] (f))")
        return lambda: build_network(text)

    assert growth(build, 100) < 2.6


# --- NDL


def ndl(statements: str) -> str:
    return f"run = N\nN = [\nx = Input(3, tag=feature)\n{statements}\n]\n"


def check(folder: Path, name: str, text: str) -> Callable[[], object]:
    path = folder / name
    path.write_text(text)
    return lambda: check_file(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("z = Parameter(1*1000000000)", "net.ndl:4:17: a value is repeated at most 1000 times"),
        ("z = Parameter(1:1*5000:2)", "a value is repeated at most 1000 times"),
        (
            "\n".join(f"M{i + 1}(x) {{ a = M{i}(x) ; b = M{i}(a) }}" for i in range(40))
            + "\nM0(x) { y = Exp(x) }\nz = M40(x)",
            "beyond the limit of 1000",
        ),
    ],
)
def test_ndl_is_bounded(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "net.ndl"
    path.write_text(ndl(text))
    assert told in failing(lambda: build_ndl_file(path))


def test_values_that_are_drawn_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "net.ndl"
    path.write_text(ndl("W = Parameter(1000000000, 3) ; z = Times(W, x, tag=output)"))
    found = build_ndl_file(path).network
    assert "12000000000 bytes, beyond the limit" in failing(lambda: initialize(found))


# What doubles with the text may double the work, and no more.
LINEAR_NDL = {
    "undefined names": lambda n: "\n".join(f"y{i} = Exp(zz{i})" for i in range(n)),
    "undefined functions": lambda n: "\n".join(f"y{i} = Sigmoit{i}(x)" for i in range(n)),
    "one name again": lambda n: "y = Exp(x)\n" * n,
    "wrong tags": lambda n: "\n".join(f'y{i} = Exp(x, tag="a")' for i in range(n)),
    "warnings": lambda n: "\n".join(f"y{i} = Exp(-x, foo=1)" for i in range(n)),
    "long names": lambda n: f"y = Exp({'z' * 20 * n})",
}


@pytest.mark.parametrize("kind", LINEAR_NDL)
def test_ndl_in_linear_time(tmp_path: Path, kind: str) -> None:
    def make(size: int) -> Callable[[], object]:
        return check(tmp_path, f"{size}.ndl", ndl(LINEAR_NDL[kind](size)))

    assert growth(make, 300) < 2.5


def test_brackets_are_paired_once() -> None:
    """Each of the levels was looked through for the end of every bracket in it."""

    def make(depth: int) -> Callable[[], object]:
        text = "\n".join(f"y{i} = {'Exp(' * depth}x{')' * depth}" for i in range(20))
        return lambda: parse_ndl(f"[ {text} ]")

    assert growth(make, 40) < 2.3


# --- configs

CONFIG = """command = train
train = [ action = train ; modelPath = m
SGD = [ maxEpochs = 1 ; learningRatesPerSample = 0.1 {sgd} ]
SimpleNetworkBuilder = [ layerSizes = 4:3 ; trainingCriterion = SquareError
evalCriterion = SquareError ]
reader = [ readerType = UCIFastReader ; file = no ; features = [ dim = 4 ; start = 0 ]
labels = [ dim = 1 ; start = 4 ; labelDim = 3 ] ]
]
{top}
"""


def config(top: str = "", sgd: str = "") -> str:
    return CONFIG.format(top=top, sgd=sgd)


def numbered(text: str, count: int) -> str:
    return "\n".join(text.replace("#", str(i)) for i in range(count))


LINEAR_CONFIGS = {
    "sections merged": lambda n: config(numbered("a = [ b# = 1 ]", n)),
    "sections merged inside": lambda n: config(numbered("train = [ a = [ b# = 1 ] ]", n)),
    "unread names": lambda n: config(numbered("foo# = 1", n)),
    "unread names inside": lambda n: config(sgd="\n" + numbered("foo# = 1", n)),
    "comments": lambda n: config(sgd="\n" + numbered("foo# = 1 # a comment", n)),
    "wrong commands": lambda n: (
        f"command = {numbered('c#', n).replace(chr(10), ':')}\n" + numbered("d# = [ a = 1 ]", n)
    ),
    "one command again": lambda n: config(f"command = train*{n}"),
    "nested sections": lambda n: config(numbered("a# = [ b = [ c = [ d = 1 ] ] ]", n)),
    "quotes": lambda n: config('a = "x" ; ' * n),
    "variables": lambda n: config("v = 1\n" + numbered("a# = $v$", n)),
}


@pytest.mark.parametrize("kind", LINEAR_CONFIGS)
def test_configs_in_linear_time(tmp_path: Path, kind: str) -> None:
    def make(size: int) -> Callable[[], object]:
        return check(tmp_path, f"{size}.cntk", LINEAR_CONFIGS[kind](size))

    assert growth(make, 150) < 2.5


def test_merged_values_keep_their_places() -> None:
    found = parse_config("a = [ b = 1 ]\na = [ c = x ]\na = [ b = 2 ]", "f.cntk").section("a")
    assert (found.int("b"), found.string("c")) == (2, "x")
    with pytest.raises(FormatError, match=r"f.cntk:2:11"):
        found.int("c")
    assert parse_config('a = ""\na = [ c = 1 ]').section("a").int("c") == 1


def test_all_values_of_a_config_are_bounded() -> None:
    text = f"v0 = {'x' * 1_000}\n"
    text += numbered("v# = $w#$$w#$", 0)
    text += "".join(f"v{i + 1} = $v{i}$$v{i}$\n" for i in range(9))
    found = parse_config(text + numbered("a# = $v9$", 200))

    def read() -> None:
        for i in range(200):
            found.string(f"a{i}")

    with pytest.raises(FormatError, match="beyond the limit"):
        read()


def test_a_count_is_bounded_and_values_that_are_written_out_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPSCOPE_LIMITS", "elements=100")
    assert len(ConfigArray(":".join(["1"] * 500))) == 500
    assert len(ConfigArray("1*100")) == 100
    with pytest.raises(FormatError, match="101 elements, beyond the limit"):
        ConfigArray("1*101")


@pytest.mark.parametrize(("sizes", "types"), [([5] * 800, ("Sigmoid",)), ([5] * 900, ("none",))])
def test_a_standard_network_is_bounded(sizes: list[int], types: tuple[str, ...]) -> None:
    settings = SimpleNetworkSettings(sizes, "SquareError", "SquareError", layer_types=types)
    assert "beyond the limit of 1000" in failing(lambda: build_simple_network(settings))


def test_the_newest_node_is_renamed_at_once() -> None:
    def make(layers: int) -> Callable[[], object]:
        settings = SimpleNetworkSettings(
            [5] * layers, "SquareError", "SquareError", layer_types=["none"]
        )
        return lambda: build_simple_network(settings)

    assert growth(make, 100) < 2.2


def test_renaming_keeps_the_order() -> None:
    found = Network()
    for name in "abc":
        found.add("InputValue", name, attributes={"shape": (1,)})
    found.rename(found.find("c"), "C")
    found.rename(found.find("a"), "z")
    assert list(found.nodes) == ["z", "b", "C"]
    assert found.find("c").name == "C"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no such files")
def test_included_files_are_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in (tmp_path / "fifo", Path("/dev/zero")):
        path = tmp_path / "a.cntk"
        path.write_text(f"include={name}\n")
        with pytest.raises(FormatError, match="a pipe or a device, not a file"):
            load_config(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no such files")
def test_values_come_from_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in (tmp_path / "fifo", Path("/dev/zero")):
        path = tmp_path / "net.ndl"
        path.write_text(ndl(f'W = Parameter(3, 3, init=fromFile, initFromFilePath="{name}")'))
        with pytest.raises(FormatError, match="a pipe or a device, not a file"):
            initialize(build_ndl_file(path).network)


@pytest.mark.parametrize("init", ["uniform", "gaussian", "fixedvalue, value=3"])
def test_all_parameters_of_a_network_together(
    init: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.ndl"
    path.write_text(ndl("\n".join(f"W{n} = Parameter(300, 300, init={init})" for n in range(3))))
    monkeypatch.setenv("OPSCOPE_LIMITS", "fill=2M")
    initialize(build_ndl_file(path).network)
    monkeypatch.setenv("OPSCOPE_LIMITS", "fill=1M")
    told = r"W2.*with 720000 bytes before it: 1080000 bytes, .*fill=NUMBER"
    with pytest.raises(FormatError, match=told):
        initialize(build_ndl_file(path).network)


def test_values_take_little_more_than_themselves(tmp_path: Path) -> None:
    path = tmp_path / "net.ndl"
    path.write_text(ndl("W = Parameter(2000, 2000, init=uniform)"))
    network = build_ndl_file(path).network
    tracemalloc.start()
    initialize(network)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16_000_000 + (6 << 20)


def test_axes_are_bounded() -> None:
    text = network("y = Input {(array [1..65] (i => 1))} ; z = Exp (y)")
    with pytest.raises(OpscopeError, match="65 dimensions; 64 is the most"):
        build_network(text)


def test_a_file_without_end_is_not_read_whole() -> None:
    with pytest.raises(FormatError, match="/dev/zero: more than"):
        read_source("/dev/zero")


# --- MEL


@pytest.mark.parametrize(
    "text",
    [
        lambda n: numbered("Foo#(x)", n),
        lambda n: f"SetInput({'*a' * n}, 1, x)",
        lambda n: f"SaveModel(m, x, {','.join(f'f{i}=1' for i in range(n))})",
        lambda n: numbered("y# = Exp(Exp(Exp(x)))", n),
    ],
    ids=["unknown commands", "stars", "options", "in line"],
)
def test_mel_in_linear_time(tmp_path: Path, text: Callable[[int], str]) -> None:
    def make(size: int) -> Callable[[], object]:
        return check(tmp_path, f"{size}.mel", text(size))

    assert growth(make, 300) < 2.5


def test_wrong_statements_are_told_up_to_a_number() -> None:
    errors: list[FormatError] = []
    with pytest.raises(FormatError):
        parse_mel("=\n" * 500, errors)
    assert len(errors) == 100


# --- names that are suggested


def test_suggestions_are_bounded() -> None:
    names = [f"layer{i}.weight" for i in range(20_000)]
    few, many = names[:5_000], names
    assert operations(lambda: nearest("layer17.wieght", many)) < 1_000_000
    assert nearest("layer17.wieght", few) == nearest("layer17.wieght", many)
    assert "layer17.weight" in nearest("layer17.wieght", many)
    assert operations(lambda: nearest("w" * 100_000, ["w" * 99_999] * 10)) < 100
    assert nearest("LAYER9999.WEIGHT", many).startswith(" (did you mean layer9999.weight")


def test_long_lines_are_not_copied_for_each_error() -> None:
    place = Source("f", "x" * 1_000_000).locate(500_000)
    assert len(place.caret()) < 400
    assert place.caret().startswith("    ...xxx")


def test_long_numbers_are_read_once() -> None:
    """300,000 digits: an expression that can cut them in two anywhere takes hours."""
    digits = "9" * 300_000
    assert parse_double(digits) == float("inf")
    assert parse_double(digits + "x") is None
    assert parse_double("0x" + digits + "y") is None
