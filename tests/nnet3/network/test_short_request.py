"""Requests with ranges: rows and their text, requests in one line, Kaldi's files of requests."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope import nnet3
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.kaldi_io import Reader
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.index.indexes import NO_TIME
from opscope.nnet3.index.ranges import RangeError, format_numbers, format_rows, parse_rows
from opscope.nnet3.network.short_request import parse_request

CONFIG = """\
input-node name=input dim=4
input-node name=ivector dim=3
component name=a type=NoOpComponent dim=7
component-node name=a component=a input=Append(input, ReplaceIndex(ivector, t, 0))
dim-range-node name=part input-node=a dim-offset=0 dim=2
output-node name=output input=a
output-node name=output-2 input=part
"""
LINES = [
    "input=-3:20 ivector=0 output=0:17",
    "n=0:3 input=-3:20 output=0:15:3",
    "n=2 input=0;5:7;9 output=5",
    "input=0,-3:20;1,-3:9 output=0,0:17;1,0:6",
    "input=0:3@-3:20/deriv output=0:3@0:17/deriv need_model_derivative",
    "input=0,0:4,0:39 a=0,5 output=0,0 output-2=0,0 store_component_stats",
]


@pytest.fixture(scope="module")
def nnet():
    return nnet3.Nnet.from_config_text(CONFIG, 0)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("0,-1:2", [(0, -1, 0), (0, 0, 0), (0, 1, 0), (0, 2, 0)]),
        ("0:1,0:6:3", [(0, 0, 0), (0, 3, 0), (0, 6, 0), (1, 0, 0), (1, 3, 0), (1, 6, 0)]),
        ("0:1@0:6:3", [(0, 0, 0), (1, 0, 0), (0, 3, 0), (1, 3, 0), (0, 6, 0), (1, 6, 0)]),
        ("3,7,0:1", [(3, 7, 0), (3, 7, 1)]),
        ("0,none;0,4", [(0, NO_TIME, 0), (0, 4, 0)]),
    ],
)
def test_rows_and_their_text(text, rows):
    assert [tuple(row) for row in parse_rows(text).tolist()] == rows
    assert format_rows(np.array(rows)) == text


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 3), st.integers(0, 2)), min_size=1))
def test_any_rows_come_back(rows):
    text = format_rows(np.array(rows))
    assert [tuple(row) for row in parse_rows(text).tolist()] == rows


def test_numbers_with_ranges():
    assert format_numbers(np.array([1, 4, 8, 9, 10, 20, 25, 30])) == "1,4,8:10,20:30:5"
    assert format_numbers(np.array([-1, -1, -1, 5, 3])) == "-1 x 3,5,3"


@pytest.mark.parametrize("line", LINES)
def test_lines_come_back(nnet, line):
    request = parse_request(nnet, line)
    assert str(request) == line


def test_a_line_is_the_request_of_its_rows(nnet):
    request = parse_request(nnet, "deriv output=0:2:2 n=0:1 input=0:2")
    rows = [[n, t, 0] for n in (0, 1) for t in (0, 1, 2)]
    assert request.inputs[0].indexes.tolist() == rows
    assert request.outputs[0].indexes.tolist() == [row for row in rows if row[1] != 1]
    assert request.inputs[0].has_deriv and request.outputs[0].has_deriv
    assert request.need_model_derivative and not request.store_component_stats


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ("inputt=0 output=0", 1, "the network has no node 'inputt' (did you mean input"),
        ("input=0 output=0:x", 16, "'0:x' is no time t"),
        ("input=0,2:1 output=0", 9, "'2:1' ends before it begins"),
        ("input=0 output=0,1:9:0", 18, "a step of 0"),
        ("input=0 output=", 16, "'' is no time t"),
        ("input=0;;1 output=0", 9, "'' is no time t"),
        ("input=0 input=1 output=0", 9, "'input' stands here a second time"),
        ("n=0 n=1 output=0", 5, "'n=' stands here a second time"),
        ("n=x output=0", 3, "'x' is no number n"),
        ("input=0/derv output=0", 8, "'/derv' should be '/deriv'"),
        ("part=0 output=0", 1, "'part' takes columns; rows are given to input and component"),
        ("a_input=0 output=0", 1, "'a_input' is the input of a component"),
        ("input=0", 1, "no rows of an output are asked for; outputs: output, output-2"),
        ("derv output=0", 1, "'derv' is neither NAME=ROWS, nor n=..., nor one of"),
        ("input=-1,0 output=0", 7, "n must lie in 0"),
        ("input=0:99999,0:99999 output=0", 7, "more than 4,194,304 rows"),
    ],
)
def test_mistakes_in_lines(nnet, line, place, message):
    with pytest.raises(FormatError) as caught:
        parse_request(nnet, line)
    told = str(caught.value)
    assert told.startswith(f"request, character {place}: ") and message in told
    assert len(told) <= 500 and "\n" not in told


def test_rows_without_sequences_name_them():
    with pytest.raises(RangeError, match="written n,t or n,t,x"):
        parse_rows("0:4")


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("line", LINES)
def test_kaldis_files(nnet, line, binary, tmp_path):
    request = parse_request(nnet, line)
    path = tmp_path / "request"
    request.write(path, binary)
    assert ComputationRequest.read(path).key() == request.key()
    data = path.read_bytes()
    for end in range(20, len(data) - 2, 11):
        with pytest.raises(FormatError, match="byte"):
            ComputationRequest.read(Reader(data[:end]))
    with pytest.raises(FormatError, match="something stands after the request"):
        ComputationRequest.read(Reader(data + b"more "))


def test_kaldis_binary_form_byte_by_byte(nnet, tmp_path):
    parse_request(nnet, "output=3").write(tmp_path / "request")
    count = b"\xf8" + (1).to_bytes(8, "little")  # an unsigned number of 8 bytes
    assert (tmp_path / "request").read_bytes() == (
        b"\0B<ComputationRequest> <NumInputs> \xf8" + bytes(8) + b"<Inputs> <NumOutputs> "
        + count + b"<Outputs> <IoSpecification> output <NumIndexes> " + count
        + b"<Indexes> <I1V> \x04\x01\0\0\0\x03<HasDeriv> F</IoSpecification> "
        + b"<NeedModelDerivative> F<StoreComponentStats> F</ComputationRequest> "
    )  # fmt: skip


def test_lines_in_a_file(tmp_path):
    path = tmp_path / "request.txt"
    path.write_text("input input 0,0:3\noutput output 0,0:3\n")
    assert len(ComputationRequest.read(path).inputs[0].indexes) == 4
    path.write_bytes(b"input \xff\n")
    with pytest.raises(FormatError, match=r"request\.txt: no text \(byte 6\)"):
        ComputationRequest.read(path)
