"""The uniform layout of BrainScript text: same meaning, same comments, stable."""

import random
import re
from pathlib import Path

import pytest

from opscope.cntk.base.text import Source
from opscope.cntk.brainscript.language.formatter import format_text
from opscope.cntk.brainscript.language.parser import parse_members
from opscope.cntk.brainscript.language.tokens import TOKEN
from opscope.framework.base.errors import FormatError

HERE = Path(__file__).parent
FILES = [
    *sorted((HERE.parents[2] / "cntk" / "brainscript" / "library").glob("*.bs")),
    HERE / "timit_simple.bs",
    HERE / "bidirectional.bs",
]


def comments(text):
    return [m.group().rstrip() for m in TOKEN.finditer(text) if m.lastgroup == "comment"]


def test_a_layout():
    messy = """# a network
features=Input{ 784 } ;labels = Input {10,tag='label'}// two


    h= Sigmoid(   # inside
  W*features
     +b )
z=if true
then -h.x
  else { a=1;b=[a  =2] }.b
include "macros.bs"
Layer{n,bias=true}={
W=Parameter{n,0}
# its function
apply(x)=W*x }.apply
x[i:0..3] = [|1;2|]
"""
    assert (
        format_text(messy)
        == """# a network
features = Input{784} ; labels = Input {10, tag = 'label'}  // two


h = Sigmoid(  # inside
    W * features
    + b)
z = if true
    then -h.x
    else { a = 1 ; b = [ a = 2 ] }.b
include "macros.bs"
Layer{n, bias = true} = {
    W = Parameter{n, 0}
    # its function
    apply(x) = W * x }.apply
x[i:0..3] = [|1 ; 2|]
"""
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_keep_their_meaning_and_comments(path):
    text = path.read_text()
    laid_out = format_text(text)
    assert comments(laid_out) == comments(text)
    assert format_text(laid_out) == laid_out
    if not text.startswith("new"):
        parse = (parse_members(Source("x", t)) for t in (text, laid_out))
        assert next(parse) == next(parse)


def test_the_layout_does_not_depend_on_the_blanks():
    generator = random.Random(3)
    text = (HERE / "timit_simple.bs").read_text()
    for _ in range(5):
        shuffled = re.sub(r"(?m)^[ ]+", lambda m: " " * generator.randrange(9), text)
        shuffled = re.sub(r" = ", lambda m: generator.choice(["=", " =", "  = "]), shuffled)
        assert format_text(shuffled) == format_text(text)


def test_a_section_in_brackets():
    assert format_text("{a=1\nb=2}") == "{ a = 1\n    b = 2 }\n"


def test_no_brainscript():
    with pytest.raises(FormatError, match="operand expected"):
        format_text("a = * 2")
