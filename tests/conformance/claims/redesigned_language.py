"""The notes on the redesign of CNTK's configuration language: grammar, meaning, two examples."""

# ruff: noqa: E501  a row of the table is a line
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from conformance.claims.claim import Claim, Document, fails
from mistakes.cntk import redesigned
from opscope.cntk.brainscript.redesign.classes import TOP_CLASSES
from opscope.cntk.brainscript.values import Array, Function, Record, flatten
from opscope.cntk.network.network import Network
from opscope.cntk.network.nodes.node import Node
from opscope.cntk.sgd.options import SgdOptions
from package_copy import ROOT
from redesigned_files import read, value

C = Claim
EXAMPLES = ROOT / "examples/redesigned"


def v(text: str) -> Any:
    """The value of an expression; arrays as lists, records as the names of their members."""
    found = value(text)
    if isinstance(found, Array):
        return flatten(found)
    return sorted(found.members) if isinstance(found, Record) else found


def is_(text: str, wanted: Any) -> Callable[[], bool]:
    """A check that an expression has a value, of the same type."""

    def check() -> bool:
        found = v(text)
        return type(found) is type(wanted) and found == wanted

    return check


def wrong(text: str, message: str) -> Callable[[], bool]:
    """A check that an expression is refused with a message."""
    return lambda: fails(lambda: v(text), message)


def node(text: str, operation: str) -> Callable[[], bool]:
    """A check that an expression is a node of a kind."""
    return lambda: isinstance(v(text), Node) and v(text).operation == operation


def network(members: str) -> Network:
    """The network of an NDL object with these members."""
    return value(f"new NDL [ {members} ]")


@cache
def example(name: str, *overrides: tuple[str, str]) -> Any:
    """The actions of one of the two examples, by name."""
    given = {"ExpDir": "e", "ScpDir": "s", "MlfDir": "m", **dict(overrides)}
    if "DeviceNumber" in text_of(name):
        given["DeviceNumber"] = "-1"
    experiment, told = read((EXAMPLES / name).read_text(), given, [EXAMPLES])
    return {action.name: action for action in experiment.actions} | {
        "told": told,
        "settings": experiment.settings,
    }


def timit(action: str = "TIMIT_TrainSimple") -> Any:
    return example("timit.bs")[action]


def sgd(name: str, action: str = "TIMIT_TrainSimple") -> list[str]:
    return timit(action).config.section("SGD").array(name).strings()


def reader(name: str, section: str = "") -> str:
    source = timit().config.section("reader")
    return (source.section(section) if section else source).string(name)


def small() -> Any:
    """Example 2 with 5 frames, 2 layers of 16."""
    return example(
        "bidirectional.bs",
        ("Train.T", "5"),
        ("Train.model.network.hiddenDim", "16"),
        ("Train.model.network.numHiddenLayers", "2"),
    )["Train"].network


def shape_of(net: Any, name: str) -> Any:
    net.validate()
    return net.find(name).shape


def text_of(name: str) -> str:
    return (EXAMPLES / name).read_text()


def stands_in(name: str, *pieces: str) -> Callable[[], bool]:
    """A check that lines of the notes stand in an example, up to blanks, and that it is read."""

    def check() -> bool:
        text = " ".join(text_of(name).split())
        network = timit("TIMIT_TrainNDL").network if name == "timit.bs" else small()
        stand = all(" ".join(piece.split()) in text for piece in pieces)
        return stand and network.find("ScaledLogLikelihood").operation == "Minus"

    return check


def options(text: str) -> SgdOptions:
    """The options of SGD that a file has with another optimizer."""
    given = "minibatchSize = 256 ; learningRatesPerMB = 0.8 ; maxEpochs = 5"
    return SgdOptions.of(
        read(redesigned().replace(given, text))[0].actions[0].config.section("SGD")
    )


def drawn(more: str) -> list[dict[str, Any]]:
    """How the weights of a network are drawn with other members of its builder."""
    weights = (n for n in other_builder(more).nodes.values() if n.name.startswith("W"))
    return [n.attributes for n in weights if n.operation == "LearnableParameter"]


def other_builder(more: str) -> Any:
    """The network of a file with other members of its builder."""
    network = action_of(redesigned().replace("layerTypes =", f"{more} ; layerTypes =")).network
    network.validate()
    return network


def action_of(text: str, overrides: dict[str, str] | None = None) -> Any:
    return read(text, overrides)[0].actions[0]


def edited(extra: str = "") -> Any:
    """A model that `EditModel` made of another one, in one file."""
    return value(
        "[ old = new NDL [ x = Input (2) ; h = Tanh (x) ; z = Sigmoid (h) ]"
        f" ; new_ = EditModel (old, [ {extra} ]) ].new_"
    )


def lazy() -> bool:
    """Whether a member that nobody needs is not evaluated, and one that is needed fails."""
    return v("[ a = Fail ('no') ; b = 1 ].b") == 1.0 and fails(
        lambda: v("[ a = Fail ('no') ; b = a ].b"), "no"
    )


EDIT = "[ old = new NDL [ x = Input (2) ; z = Tanh (x) ] ; e = EditModel (old, [ z = Sigmoid (old.x) ]) ]"
STREAMS = "streams = ([ reader = features ; input = model.network.features ] : [ reader = labels ; input = model.network.labels ])"
STACK = (
    "layers = array [0..3] (i => if i == 0 then [ Eh = x ] else [ Eh = Sigmoid (layers[i-1].Eh) ])"
)


CLAIMS = [
    # -- basic concepts
    C(8, "A config specifies runtime objects", lambda: isinstance(network("x = Input (2)"), Network)),
    C(8, "and the parameters that they are made with", lambda: sgd("maxEpochs") == ["25"]),
    C(9, "Dictionaries are a basic concept", is_("[ a = 1 ; b = 2 ]", ["a", "b"])),
    C(9, "Definitions of runtime objects are another", node("new ComputeNode [ class = 'InputValue' ; shape = 2 ]", "InputValue")),
    C(11, "new, a class and a dictionary make an object", is_("new String [ from = 'ab' ; replacing = 'b' ; with = 'c' ]", "ac")),
    C(12, "M(x,y,z) = expression defines a macro", is_("[ M(x,y,z) = x*y+z ; r = M(2,3,4) ].r", 10.0)),
    C(12, "The expression uses the parameters", is_("[ M(x) = x+x ; r = M('a') ].r", "aa")),
    C(14, "[ a=expr1 ; c=expr2 ] is a dictionary", is_("[ a=1+1 ; c='x' ].a", 2.0)),
    C(15, "W*v+a is an expression", is_("[ W = 2 ; v = 3 ; a = 4 ; r = W*v+a ].r", 10.0)),
    C(15, "n==0 is an expression", is_("[ n = 0 ; r = n==0 ].r", True)),
    C(15, "Parentheses group as usual", is_("(1 + 2) * 3", 9.0)),
    C(16, "if c then a else b", is_("if 1 < 2 then 'a' else 'b'", "a")),
    C(16, "Only the branch that is chosen is evaluated", is_("if true then 1 else Fail ('no')", 1.0)),
    C(17, "a:b:c is an array", is_("1 : 2 : 3", [1.0, 2.0, 3.0])),
    C(17, "array [1..N] (i => f(i)) is an array", is_("[ N = 3 ; f(i) = i*i ; r = array [1..N] (i => f(i)) ].r", [1.0, 4.0, 9.0])),
    C(18, "Boolean expressions are there", is_("true && !false || false", True)),
    C(18, "Mathematical expressions are there", is_("2 ** 3 - 7 % 4 / 2", 6.5)),
    C(19, "Functions are runtime objects defined through macros", is_("[ Swap(s,what,withwhat) = String [ from=s ; replacing=what ; with=withwhat ] ; r = Swap ('abc', 'b', 'x') ].r", "axc")),
    C(19, "A parameter may be called with; in a dictionary that has a member with, this one counts", is_("[ f(s,with,withwhat) = String [ from=s ; replacing=with ; with=withwhat ] ; g(with) = with + 'x' ; r = f ('abc', 'b', 'c') : g ('b') ].r", ["abc", "bx"])),
    C(19, "String replaces text in text", is_("Replace ('a.b.c', '.', '/')", "a/b/c")),
    C(20, "A config is parsed eagerly: a mistake anywhere is found", wrong("[ a = 1 ; b = (2 + ; c = 3 ].a", "operand expected")),
    C(20, "and is evaluated lazily", lazy),
    C(21, "configFile=conf.bs a=b c=d is new CNTK [ ... ] + [ a=b ; c=d ]", lambda: action_of(redesigned(), {"train.model.modelPath": "other.dnn"}).config.string("modelPath") == "other.dnn"),
    C(21, "A name on the command line replaces one of the file", lambda: action_of("minibatchSize = 1\n" + redesigned().replace("minibatchSize = 256 ;", ""), {"minibatchSize": "9"}).config.section("SGD").string("minibatchSize") == "9"),
    C(21, "The file may be written with new CNTK around it", lambda: action_of("new CNTK [ " + redesigned() + " ]").name == "train"),
    C(23, "Members that only help to make others are members, too", is_("[ half = 2 ; whole = half * 2 ]", ["half", "whole"])),
    C(24, "Editing with a.b.c", is_("([ a = [ b = [ c = 1 ] ] ] + [ a.b.c = 2 ]).a.b.c", 2.0)),
    C(24, "A member is taken away by delete", is_("[ a = 1 ; b = 2 ] + [ a = delete ]", ["b"])),
    C(25, "Macros have no optional parameters in the notes; here they have, as in the released language", is_("[ f (x, y = 2) = x + y ; r = f (1) ].r", 3.0)),
    # -- grammar
    C(26, "The top level defines an object of class CNTK", lambda: "CNTK" in TOP_CLASSES),
    C(26, "A file that is no such object is refused", lambda: fails(lambda: read("new Model [ ]"), "new CNTK")),
    C(27, "new CNTK [ actions=train ; train=TrainAction [ ... ] ]: new may be left out before a class", lambda: action_of(redesigned().replace("new TrainAction", "TrainAction")).name == "train"),
    C(27, "actions is a member of CNTK: it is needed", lambda: fails(lambda: read("x = 1"), "no member 'actions'")),
    C(28, "The top level is a dictionary without brackets around it", lambda: action_of(redesigned()).name == "train"),
    C(30, "new ComputeNode [ class=\"Plus\" ; arg1=A ; arg2=B ]", node("[ A = Input (2) ; B = Input (2) ; r = new ComputeNode [ class=\"Plus\" ; arg1=A ; arg2=B ] ].r", "Plus")),
    C(30, "Arguments are the node's inputs in order", lambda: [i.name for i in network("A = Input (2) ; B = Input (2) ; r = new ComputeNode [ class = 'Minus' ; arg1 = A ; arg2 = B ]").find("r").inputs if i] == ["A", "B"]),
    C(31, "new, class name, expression", is_("new String [ format = '%d' ; arg = 3 ]", "3")),
    C(32, "The expression must be a dictionary", wrong("new String 13", "expected a record, not a number")),
    C(32, "Any expression that gives a dictionary will do", is_("[ a = [ from = 'x' ; replacing = 'x' ] ; r = new String (a + [ with = 'y' ]) ].r", "y")),
    C(33, "The class name is an identifier", wrong("new 'String' []", "identifier expected")),
    C(34, "It is one of the known classes", wrong("new Strnig []", "unknown runtime type 'Strnig'.*did you mean String")),
    C(35, "Dictionaries are groups of keys and values", is_("[ x = 'a' ; y = true ]", ["x", "y"])),
    C(36, "Dictionaries are expressions", is_("(if true then [ a = 1 ] else []).a", 1.0)),
    C(37, "dict1 + dict2: members of the second override those of the first", is_("([ a = 1 ; b = 2 ] + [ b = 3 ]).b", 3.0)),
    C(37, "The others stay", is_("([ a = 1 ; b = 2 ] + [ b = 3 ]).a", 1.0)),
    C(38, "[ arg1=A ; arg2=B ]", is_("[ A = 1 ; r = [ arg1=A ; arg2=A ] ].r.arg2", 1.0)),
    C(39, "dict1 + (if ... then [ numiter = 5 ] else []): fulfilled", is_("[ dict1 = [ numiter = 1 ] ; dpt = true ; layer = 1 ; totallayers = 2 ; r = dict1 + (if (dpt && layer < totallayers) then [ numiter = 5 ] else []) ].r.numiter", 5.0)),
    C(39, "and not fulfilled", is_("[ dict1 = [ numiter = 1 ] ; dpt = false ; r = dict1 + (if dpt then [ numiter = 5 ] else []) ].r.numiter", 1.0)),
    C(40, "A dictionary stands in square brackets", is_("[ ]", [])),
    C(40, "Another bracket does not close it", wrong("[ a = 1 )", "']' expected")),
    C(41, "Any number of items", is_("[ a = 1 b = 2 c = 3 ]", ["a", "b", "c"])),
    C(41, "Items may be separated by semicolons or blanks", is_("[ a = 1 ; b = 2 c = 3 ].c", 3.0)),
    C(41, "A name that comes twice is an error with both places", wrong("[ a = 1 ; a = 2 ]", "'a' is defined twice.*first defined at")),
    C(42, "An item is var=val", is_("[ numiter=13 ].numiter", 13.0)),
    C(43, "or macro(args)=expression", is_("[ f(a)=a ].f(3)", 3.0)),
    C(44, "numiter = 13", is_("[ numiter = 13 ].numiter", 13.0)),
    C(44, "The left side is an identifier", wrong("[ 3 = 13 ]", "']' expected")),
    C(45, "sqr(x) = x*x", is_("[ sqr(x) = x*x ; r = sqr(3) ].r", 9.0)),
    C(45, "Several parameters are separated by commas", is_("[ f(x,y) = x-y ; r = f(3,1) ].r", 2.0)),
    C(45, "Two parameters of one name are an error", wrong("[ f(x,x) = x ]", "two parameters are called 'x'")),
    C(47, "Infix operators of C bind as in C", is_("1 + 2 * 3 == 7 && 4 > 3", True)),
    C(47, "besides .*", node("[ A = Input (2) ; r = A .* A ].r", "ElementTimes")),
    C(47, "** is the power", is_("2 ** 10", 1024.0)),
    C(47, ":", is_("1 : 2", [1.0, 2.0])),
    C(47, "..", is_("array [1..2] (i => i)", [1.0, 2.0])),
    C(48, "[ a=13; b=42; res=a*b ].res", is_("[ a=13; b=42; res=a*b ].res", 546.0)),
    C(49, "+ joins strings", is_("'ab' + 'cd'", "abcd")),
    C(49, "+ edits dictionaries", is_("[ a = 1 ] + [ b = 2 ]", ["a", "b"])),
    C(50, "An operand is an expression", is_("13", 13.0)),
    C(51, "An infix operator stands between two", is_("1 + 2", 3.0)),
    C(51, "Operators of one level go from left to right", is_("10 - 3 - 2", 5.0)),
    C(52, "dict.member", is_("[ d = [ m = 5 ] ; r = d.m ].r", 5.0)),
    C(52, "An expression in front of the dot", is_("([ m = 1 ] + [ n = 2 ]).n", 2.0)),
    C(53, "It must be a dictionary", wrong("(13).a", "expected a record, not a number")),
    C(53, "A member that it has not is an error", wrong("[ member = 1 ].membre", "unknown identifier 'membre'.*did you mean member")),
    C(54, "a(13)", is_("[ a(x) = x ; r = a(13) ].r", 13.0)),
    C(54, "dict.a(13)", is_("[ dict = [ a(x) = x+1 ] ; r = dict.a(13) ].r", 14.0)),
    C(54, "Macros are passed as arguments", is_("[ twice (f, x) = f (f (x)) ; g (x) = x * 3 ; r = twice (g, 2) ].r", 18.0)),
    C(54, "Partial application is possible", is_("[ add (a, b) = a + b ; f = add (2) ; r = f (3) ].r", 5.0)),
    C(54, "A partial application is a function", lambda: isinstance(v("[ add (a, b) = a + b ; f = add (2) ].f"), Function)),
    C(54, "Macros are curried: add (2) (3)", is_("[ add (a, b) = a + b ; r = add (2) (3) ].r", 5.0)),
    C(54, "Too many arguments are an error", wrong("[ f (x) = x ; r = f (1, 2) ].r", "expects 1 positional.*2 were provided")),
    C(55, "What is called must be a macro", wrong("[ a = 13 ; r = a (1) ].r", "expected a function, not a number")),
    C(56, "h_fwd[t]", is_("[ h_fwd = 5 : 6 : 7 ; t = 1 ; r = h_fwd[t] ].r", 6.0)),
    C(57, "What is indexed must be an array", wrong("[ a = 13 ; r = a[1] ].r", "expected an array, not a number")),
    C(57, "An index must be a number", wrong("(1 : 2)['a']", "expected a number, not a string")),
    C(57, "It must be an integer", wrong("(1 : 2)[0.5]", "expected an integer, not 0.5")),
    C(57, "It must lie within the array", wrong("(1 : 2)[2]", r"Index 2 out of bounds \[0..1\]")),
    # -- operators
    C(58, "* and / bind most tightly", is_("2 + 3 * 4 - 8 / 2", 10.0)),
    C(59, "* multiplies numbers", is_("3 * 4", 12.0)),
    C(59, "* is short for Times", node("[ W = Parameter (3, 2) ; x = Input (2) ; r = W * x ].r", "Times")),
    C(59, "* with a number scales a node", node("[ x = Input (2) ; r = 2 * x ].r", "ElementTimes")),
    C(60, "/ divides numbers", is_("7 / 2", 3.5)),
    C(60, "/ scales a node", node("[ x = Input (2) ; r = x / 2 ].r", "ElementTimes")),
    C(61, ".* is the component-wise product", node("[ x = Input (2) ; y = Input (2) ; r = x .* y ].r", "ElementTimes")),
    C(62, "** is the power of numbers", is_("4 ** 0.5", 2.0)),
    C(62, "** binds as tightly as *, from left to right", is_("2 * 3 ** 2", 36.0)),
    C(63, "% is the remainder of numbers", is_("17 % 5", 2.0)),
    C(63, "also of fractions, with the sign of the first", is_("-7.5 % 2", -1.5)),
    C(64, "+ and - bind less tightly than *", is_("1 + 2 * 3", 7.0)),
    C(65, "+ of numbers", is_("1 + 2", 3.0)),
    C(65, "+ of nodes", node("[ x = Input (2) ; r = x + x ].r", "Plus")),
    C(65, "+ of strings", is_("'a' + 'b'", "ab")),
    C(65, "+ of dictionaries", is_("[ a = 1 ] + [ a = 2 ; b = 3 ]", ["a", "b"])),
    C(65, "+ of other things is an error", wrong("1 + 'a'", "operator \\+ cannot be applied.*number and string")),
    C(66, "- of numbers", is_("5 - 7", -2.0)),
    C(66, "- of nodes", node("[ x = Input (2) ; r = x - x ].r", "Minus")),
    C(66, "- of dictionaries", is_("[ a = 1 ; b = 2 ] - [ a = 0 ]", ["b"])),
    C(67, "Comparisons bind less tightly than + and -", is_("1 + 1 == 2", True)),
    C(68, "==", is_("'a' == 'a'", True)),
    C(68, "!=", is_("1 != 2", True)),
    C(68, "<", is_("1 < 2", True)),
    C(68, ">", is_("1 > 2", False)),
    C(68, "<=", is_("2 <= 2", True)),
    C(68, ">=", is_("1 >= 2", False)),
    C(68, "Objects are compared by identity: the same", is_("[ a = [ x = 1 ] ; r = a == a ].r", True)),
    C(68, "and two of the same content", is_("[ x = 1 ] == [ x = 1 ]", False)),
    C(69, "&& binds less tightly than comparisons", is_("1 < 2 && 3 < 4", True)),
    C(70, "&& of booleans", is_("true && false", False)),
    C(70, "&& of numbers is an error", wrong("1 && 2", "operator && cannot be applied")),
    C(71, "|| binds less tightly than &&", is_("true || true && false", True)),
    C(72, "|| of booleans", is_("false || true", True)),
    C(72, "^ is the exclusive or", is_("true ^ true", False)),
    C(72, "^ of booleans that differ", is_("true ^ false", True)),
    C(73, ": binds least tightly", is_("1 + 1 : 2 * 3", [2.0, 6.0])),
    C(74, ": joins items", is_("1 : 'a' : true", [1.0, "a", True])),
    C(74, ": joins arrays", lambda: v("Length ((1 : 2) : (3 : 4))") == 4.0),
    C(74, ": joins items and arrays", lambda: v("(0 : array [1..3] (i => i) : 9)[4]") == 9.0),
    C(74, "Arrays of arrays come from array [..], and : joins one level of them", lambda: v("(array [0..1] (i => 1 : 2) : 3)[0]") == [1.0, 2.0]),
    C(75, "\"Hello World\" is an operand", is_('"Hello World"', "Hello World")),
    C(76, "A name is an operand", is_("[ a = 1 ; r = a ].r", 1.0)),
    C(77, "[ a=\"Hello World\" ] is an operand", is_('[ a="Hello World" ].a', "Hello World")),
    C(78, "new ComputeNode [ ... ] is an operand", node("[ x = Input (2) ; r = new ComputeNode [ class = 'Tanh' ; arg1 = x ] ].r", "Tanh")),
    C(79, "-X+Y: a sign binds more tightly", is_("[ X = 2 ; Y = 3 ; r = -X+Y ].r", 1.0)),
    C(79, "+X", is_("+3", 3.0)),
    C(79, "!X of a boolean", is_("!true", False)),
    C(79, "!X of a number is an error", wrong("!1", "expected a boolean, not a number")),
    C(80, "(a==b) || (c==d)", is_("(1==2) || ('c'=='c')", True)),
    C(81, "array [1..N] (i => i*i)", is_("[ N = 4 ; r = array [1..N] (i => i*i) ].r", [1.0, 4.0, 9.0, 16.0])),
    C(82, "Literals are numbers, strings and booleans", is_("1 : 'a' : false", [1.0, "a", False])),
    C(83, "\"...\" is a string", is_('"a"', "a")),
    C(84, "true is a boolean", is_("true", True)),
    C(85, "A number is a floating point number", is_("1e-3", 0.001)),
    C(85, "There is no integer type", is_("7 / 2 * 2", 7.0)),
    C(85, "Integer arguments must not be fractional: array bounds", wrong("array [1..2.5] (i => i)", "expected an integer, not 2.5")),
    C(85, "a count of Repeat", wrong("Repeat (1, 2.5)", "expected an integer, not 2.5")),
    C(85, "a dimension of Input", wrong("Input (2.5)", "integer|2.5")),
    C(85, "a dimension of Parameter", wrong("Parameter (2.5, 3)", "integer|2.5")),
    C(85, "rows of RowSlice", wrong("RowSlice (0.5, 1, Input (3))", "integer|0.5")),
    C(85, "a code of Chr", wrong("Chr (65.5)", "expected an integer, not 65.5")),
    C(85, "a dim of ComputeNodeRef", wrong("new ComputeNodeRef [ dim = 2.5 ]", "without a fraction, not 2.5")),
    C(85, "settings of objects, such as layerSizes", lambda: fails(lambda: read(redesigned().replace("2 : 4 : 3", "2 : 4.5 : 3")), "'layerSizes' must be an integer, not 4.5")),
    C(85, "and maxEpochs", lambda: fails(lambda: read(redesigned().replace("maxEpochs = 5", "maxEpochs = 2.5")), r"^train\.bs:15:97: 'maxEpochs' must be an integer, not 2.5")),
    C(86, "Strings stand in \"\" or ''", is_("'a' + \"b\"", "ab")),
    C(86, "There are no escape characters", is_("'a\\n'", "a\\n")),
    C(86, "The other quotation mark may stand inside", is_("'say \"x\"'", 'say "x"')),
    C(86, "Combinations of both by +", is_("\"'\" + '\"'", "'\"")),
    C(86, "A string without its end is an error", wrong("'abc", "string without its closing")),
    C(87, "Strings go on over lines", is_("'a\nb'", "a\nb")),
    C(88, "false is a boolean", is_("false", False)),
    C(88, "A literal of another type as condition is an error", wrong("if 1 then 2 else 3", "expected a boolean, not a number")),
    C(89, "A name is looked for in the scopes around", is_("[ a = 1 ; d = [ e = [ r = a ] ] ].d.e.r", 1.0)),
    C(89, "The nearest one counts", is_("[ a = 1 ; d = [ a = 2 ; r = a ] ].d.r", 2.0)),
    C(89, "A name that there is not is an error", wrong("nothing", "unknown identifier 'nothing'")),
    C(90, "Bounds are any expressions", is_("[ N = 2 ; r = array [N-1..N+1] (i => i) ].r", [1.0, 2.0, 3.0])),
    C(90, "The function is written with =>", is_("array [0..1] (x => x + 1)", [1.0, 2.0])),
    C(91, "start is an index that counts", lambda: v("(array [5..7] (i => i))[5]") == 5.0),
    C(91, "end is the last one", wrong("(array [5..7] (i => i))[8]", r"out of bounds \[5..7\]")),
    C(91, "start and end are integers", wrong("array [0.5..2] (i => i)", "expected an integer, not 0.5")),
    C(91, "An array whose end lies before its start is empty", is_("array [1..0] (i => i)", [])),
    C(91, "A million elements are no matter", lambda: v("(array [1..1000000] (i => i * i))[1000000]") == 1e12),
    C(91, "The function has one parameter", wrong("[ f (x, y) = x ; r = array [1..2] (f) ].r", "a function of one argument")),
    # -- functions
    C(93, "Functions are macros that make objects", lambda: isinstance(v("Sigmoid"), Function)),
    C(95, "Times(,)", node("Times (Parameter (2, 3), Input (3))", "Times")),
    C(95, "Plus(,)", node("Plus (Input (2), Input (2))", "Plus")),
    C(95, "Sigmoid()", node("Sigmoid (Input (2))", "Sigmoid")),
    C(97, "Floor() of a number", is_("Floor (-2.5)", -3.0)),
    C(97, "Floor() for integer division", is_("Floor (7 / 2)", 3.0)),
    C(97, "Ceil()", is_("Ceil (2.1)", 3.0)),
    C(97, "Round()", is_("Round (2.5)", 3.0)),
    C(97, "Abs()", is_("Abs (-3)", 3.0)),
    C(97, "Sign()", is_("Sign (-3) : Sign (0) : Sign (5)", [-1.0, 0.0, 1.0])),
    C(99, "Replace(s,what,withwhat)", is_("Replace ('aba', 'a', 'c')", "cbc")),
    C(99, "Str(number)", is_("Str (13)", "13")),
    C(99, "Chr(number)", is_("Chr (65)", "A")),
    C(99, "Chr of any character of Unicode", is_("Chr (8364)", "€")),
    C(99, "Format(fmt,val) as sprintf", is_("Format ('%.2f', 3.14159)", "3.14")),
    C(99, "with text around it", is_("Format ('epoch %03d.', 7)", "epoch 007.")),
    C(99, "with exactly one argument", wrong("Format ('%d %d', 1)", "one %")),
    C(101, "Fail(\"...\") is an error with its text", wrong("Fail ('error description')", "error description")),
    C(101, "only when it is executed", is_("[ check = Fail ('x') ; r = 1 ].r", 1.0)),
    C(101, "so that it asserts something", wrong("[ n = 3 ; r = if n == 4 then 1 else Fail ('n is not 4') ].r", "n is not 4")),
    # -- dictionaries
    C(102, "Dictionaries are data of the config itself", is_("[ options = [ size = 3 ] ; r = options.size + 1 ].r", 4.0)),
    C(103, "They do not change: an edited one is another", is_("[ a = [ x = 1 ] ; b = a + [ x = 2 ] ; r = a.x : b.x ].r", [1.0, 2.0])),
    C(104, "The argument of new is a dictionary", wrong("new Model 'a'", "expected a record, not a string")),
    C(105, "Its members are read directly from the object", is_("[ m = new Model [ modelPath = 'p' ] ; r = m.modelPath ].r", "p")),
    C(106, "Intermediate variables are members as well", is_("(new SGDOptimizer [ n = 3 ; maxEpochs = 2 * n ]).n", 3.0)),
    C(107, "Macros are members", is_("[ f (x) = x ; a = 1 ]", ["a", "f"])),
    C(108, "dict.field, with any expression for the dictionary", is_("[ make (n) = [ field = n ] ; r = make (7).field ].r", 7.0)),
    C(109, "Objects find values in outer scopes", lambda: action_of("traceLevel = 2\n" + redesigned()).config.int("traceLevel") == 2),
    C(109, "such as precision, which many share", lambda: action_of("precision = 'double'\n" + redesigned()).network.precision == "double"),
    C(110, "Objects are inputs of other objects", node("Tanh (new ComputeNode [ class = 'InputValue' ; shape = 2 ])", "Tanh")),
    C(111, "A ComputeNodeRef is used as a node", node("Tanh (new ComputeNodeRef [ dim = 3 ])", "Tanh")),
    C(111, "It has its dimension before anything is read", is_("(new ComputeNodeRef [ dim = 3 ]).dim", 3.0)),
    C(112, "+ edits: items of the second overwrite the same items", is_("([ a = 1 ] + [ a = 5 ]).a", 5.0)),
    C(112, "What depends on an edited item changes with it", is_("([ a = 1 ; b = a * 2 ] + [ a = 5 ]).b", 10.0)),
    C(113, "- removes all items of the second", is_("[ a = 1 ; b = 2 ; c = 3 ] - [ a = 0 ; c = 0 ]", ["b"])),
    C(114, "Variables are overridden on the command line", lambda: action_of(redesigned(), {"train.optimizer.maxEpochs": "7"}).config.section("SGD").int("maxEpochs") == 7),
    C(114, "inner ones by their names with dots", lambda: action_of(redesigned(), {"train.model.modelPath": "x"}).config.string("modelPath") == "x"),
    C(114, "a record that there is not is an error", lambda: fails(lambda: read(redesigned(), {"tran.model.modelPath": "x"}), "no member 'tran'.*did you mean train")),
    # -- arrays
    C(115, "Arrays do not change", is_("[ a = 1 : 2 ; b = a : 3 ; r = Length (a) : Length (b) ].r", [2.0, 3.0])),
    C(117, "The array expression is one way to make them", is_("array [0..2] (i => 2 * i)", [0.0, 2.0, 4.0])),
    C(118, "Its elements are made by the function", is_("array [1..3] (i => Str (i))", ["1", "2", "3"])),
    C(118, "Elements are evaluated lazily", is_("(array [1..3] (i => if i == 2 then 5 else Fail ('no')))[2]", 5.0)),
    C(119, ": is the other way: elements and arrays", is_("[ a = 1 : 2 ; r = Length (a : 3 : a) ].r", 5.0)),
    C(119, "Arrays are flattened", lambda: v("[ a = 1 : 2 ; r = (0 : a : 3)[2] ].r") == 2.0),
    C(119, "The elements count from 0", is_("(array [5..6] (i => i) : 9)[0]", 5.0)),
    C(119, "Nothing after an element is evaluated for it", is_("(1 : Fail ('no'))[0]", 1.0)),
    C(120, "The index operator reads an element", is_("(7 : 8 : 9)[2]", 9.0)),
    C(122, "Append(seq,item) = seq : item", is_("Append (1 : 2, 3)", [1.0, 2.0, 3.0])),
    C(122, "The item stands at the end", is_("(Append (array [1..2] (i => i), 5))[2]", 5.0)),
    C(123, "Repeat(item,N) = array [1..N] (i => item)", is_("Repeat (0.2, 3)", [0.2, 0.2, 0.2])),
    C(123, "Its first index is 1", lambda: v("Repeat ('a', 2)[2]") == "a"),
    C(123, "Where the item was the count, as in the released language, it is an error", wrong("Repeat (3, 'a')", "expected a number, not a string")),
    C(124, "Arrays with repetition are made so", is_("Length (1 : Repeat (2, 3) : 4)", 5.0)),
    C(125, "0.8 : array [1..3] (i => 0.2) : 0.05", is_("0.8 : array [1..3] (i => 0.2) : 0.05", [0.8, 0.2, 0.2, 0.2, 0.05])),
    C(125, "It has five elements", lambda: v("(0.8 : array [1..3] (i => 0.2) : 0.05)[4]") == 0.05),
    C(126, "0.8 : Repeat(0.2,3) : 0.05", is_("0.8 : Repeat(0.2,3) : 0.05", [0.8, 0.2, 0.2, 0.2, 0.05])),
    C(126, "It has five elements, too", lambda: v("(0.8 : Repeat(0.2,3) : 0.05)[3]") == 0.2),
    C(127, "The function of array may be any true lambda", is_("[ f = (i => i * 2) ; r = array [1..2] (f) ].r", [2.0, 4.0])),
    # -- towards MEL
    C(129, "Model editing is functional: the model stays as it was", lambda: (value(f"{EDIT}.old").find("z").operation, value(f"{EDIT}.e").find("z").operation) == ("Tanh", "Sigmoid")),
    C(130, "new EditAction [ ... ]", lambda: type(action_of("actions = e\ne = new EditAction [ do = Dump (new NDL [ x = Input (2) ], 'a') ]")).__name__ == "EditAction"),
    C(131, "currModelPath is a path; \\ separates folders", stands_in("timit.bs", 'currModelPath = ExpDir + "\\TrainNDLNetwork\\model\\cntkSpeech.dnn"')),
    C(132, "newModelPath is another", stands_in("timit.bs", 'newModelPath  = ExpDir + "\\TrainNDLNetwork\\model\\cntkSpeech.dnn.0"')),
    C(133, "LoadModel(path) reads a model", wrong("LoadModel ('no.dnn')", "load|no.dnn")),
    C(134, "EditModel(model, [ ... ]) adds nodes", lambda: sorted(edited("extra = Tanh (old.x)").nodes) == ["extra", "h", "x", "z"]),
    C(135, "New items take the place of those of their names", lambda: edited("h = Sigmoid (old.x)").find("z").inputs[0].operation == "Sigmoid"),
    C(136, "Dump(newModel, path) writes it as text", lambda: action_of("actions = e\ne = new EditAction [ do = Dump (new NDL [ x = Input (2) ], 'm' + '.dump.txt') ]").steps[0][0] == "Dump"),
    C(137, "SaveModel(newModel, path) writes it", lambda: action_of("actions = e\ne = new EditAction [ do = SaveModel (new NDL [ x = Input (2) ], 'm') ]").steps[0][0] == "SaveModel"),
    C(137, "Several of these are joined by :", lambda: [step[0] for step in action_of("actions = e\ne = new EditAction [ m = new NDL [ x = Input (2) ] ; do = ( Dump (m, 'a') : SaveModel (m, 'b') ) ]").steps] == ["Dump", "SaveModel"]),
    # -- example 1
    C(140, "stderr is the log, a path that + makes", lambda: timit() and example("timit.bs")["settings"]["stderr"] == "e/TrainSimpleNetwork/log/log"),
    C(141, "actions is an action or a sequence of them", lambda: [name for name in example("timit.bs") if name.startswith("TIMIT")] == ["TIMIT_TrainSimple", "TIMIT_TrainNDL", "TIMIT_AddLayer"]),
    C(142, "Values outside are used by several objects", lambda: timit().network.precision == timit("TIMIT_TrainNDL").network.precision == "float"),
    C(143, "precision = 'float'", stands_in("timit.bs", "precision = 'float'")),
    C(144, "deviceId = DeviceNumber", lambda: example("timit.bs")["settings"]["deviceId"] == -1),
    C(146, "Repeat(val,count) is an array helper, of the library", is_("Repeat (5, 2)", [5.0, 5.0])),
    C(146, "A file may define it itself", stands_in("timit.bs", "Repeat(val,count) = array [1..count] (i => val)")),
    C(147, "new TrainAction [ ... ]", lambda: type(timit()).__name__ == "TrainAction"),
    C(148, "TrainAction has a source", lambda: fails(lambda: read(redesigned().replace("source = new", "sorce = new")), "source")),
    C(148, "a model", lambda: fails(lambda: read(redesigned().replace("model = new Model", "modl = new Model")), "model")),
    C(148, "and an optimizer", lambda: fails(lambda: read(redesigned().replace("optimizer = new", "optimzer = new")), "'optimizer' must be")),
    C(149, "The class name says what the action is", lambda: timit().config.string("action") == "train"),
    C(150, "traceLevel = 1", lambda: timit().config.int("traceLevel") == 1),
    C(152, "new Model [ ... ] is an input of TrainAction", lambda: fails(lambda: read(redesigned().replace("network = new", "netwrk = new")), "network")),
    C(153, "modelPath is made by +", lambda: timit().config.string("modelPath") == "e/TrainSimpleNetwork/model/cntkSpeech.dnn"),
    C(155, "new SimpleNetworkBuilder [ ... ]", lambda: isinstance(timit().network, Network)),
    C(156, "layerSizes = 792 : Repeat(512,3) : 183", lambda: [n.shape for n in in_order(timit().network) if n.operation == "LearnableParameter" and n.name.startswith("W")] == [(512, 792), (512, 512), (512, 512), (183, 512)]),
    C(157, "layerTypes = 'Sigmoid'", lambda: sum(n.operation == "Sigmoid" for n in timit().network.nodes.values()) == 3),
    C(158, "initValueScale = 1.0 is the default", lambda: drawn("") == drawn("initValueScale = 1.0") != drawn("initValueScale = 2.0")),
    C(159, "applyMeanVarNorm = true", lambda: any(n.operation == "PerDimMeanVarNormalization" for n in timit().network.nodes.values())),
    C(160, "uniformInit = true is the default", lambda: drawn("") == drawn("uniformInit = true") != drawn("uniformInit = false")),
    C(161, "needPrior = true", lambda: any(n.name == "Prior" for n in timit().network.nodes.values())),
    C(166, "input = source.features.data", lambda: [n.shape for n in timit().network.groups["feature"]] == [(792,)]),
    C(167, "output = ComputeNodeRef [ dim = source.labels.dim ] stands for the top layer", stands_in("timit.bs", "output = ComputeNodeRef [ dim = source.labels.dim ]")),
    C(167, "It is not in the network that is made", lambda: shape_of(timit().network, "HLast")[0] == 183),
    C(168, "Criteria are nodes that are made here", lambda: [n.operation for n in timit().network.groups["criterion"]] == ["CrossEntropyWithSoftmax"]),
    C(169, "trainingCriterion = CrossEntropyWithSoftmax (labels, output)", lambda: criterion_reads_labels()),
    C(170, "evalCriterion = ErrorPrediction (labels, output)", lambda: [n.operation for n in timit().network.groups["evaluation"]] == ["ClassificationError"]),
    C(163, "The training criterion is chosen by SGD, no longer by a name of the builder", lambda: [n.name for n in timit().network.groups["criterion"]] == ["trainingCriterion"]),
    C(171, "Input nodes may be members of the network", lambda: network("myFeatures = Input (4) ; z = Tanh (myFeatures)").find("myFeatures").is_input),
    C(172, "myFeatures=Input(featDim): streams name it", lambda: "myFeatures" in timit("TIMIT_TrainNDL").network.nodes),
    C(174, "new NDL [ ... ] is a network of its members", lambda: isinstance(network("x = Input (2)"), Network)),
    C(175, "featDim is a dimension of an input", lambda: shape_of(timit("TIMIT_TrainNDL").network, "myFeatures")[0] == 792),
    C(176, "labelDim is one, too", lambda: shape_of(timit("TIMIT_TrainNDL").network, "myLabels")[0] == 183),
    C(176, "node.dim is the number of its elements", is_("Input (7).dim", 7.0)),
    C(177, "hiddenDim = 512", stands_in("timit.bs", "hiddenDim = 512")),
    C(179, "myFeatures=Input(featDim), without a tag", lambda: timit("TIMIT_TrainNDL").network.groups["feature"] == [timit("TIMIT_TrainNDL").network.find("myFeatures")]),
    C(180, "myLabels=Input(labelDim), without a tag", lambda: timit("TIMIT_TrainNDL").network.groups["label"] == [timit("TIMIT_TrainNDL").network.find("myLabels")]),
    C(183, "MeanVarNorm(myFeatures) is a function as before", node("MeanVarNorm (Input (3))", "ElementTimes")),
    C(192, "FF(X1, W1, B1) = W1 * X1 + B1", stands_in("timit.bs", "FF(X1, W1, B1) = W1 * X1 +  B1")),
    C(193, "BFF(in, rows, cols) = [ ... ] gives a dictionary of nodes", is_("BFF (Input (3), 2, 3)", ["B", "W", "z"])),
    C(194, "Parameter(rows, init = fixedvalue, value = 0)", node("Parameter(2, init = fixedvalue, value = 0)", "LearnableParameter")),
    C(194, "Its elements are that value", lambda: filled("Parameter(2, init = fixedvalue, value = 3)") == 3),
    C(195, "Parameter(rows, cols)", lambda: v("Parameter(2, 3)").attributes["shape"] == (2, 3)),
    C(196, "z = FF(in, w, b)", stands_in("timit.bs", "z = FF(in, W, B)")),
    C(196, "A name cannot be defined twice", wrong("[ FF = 1 ; FF = 2 ]", "defined twice")),
    C(197, "SBFF(in, rowCount, colCount) = [ ... ]", stands_in("timit.bs", "SBFF(in, rowCount, colCount) = [")),
    C(198, "z = BFF(in, rowCount, colCount).z", stands_in("timit.bs", "z = BFF(in, rowCount, colCount).z")),
    C(199, "Eh = Sigmoid(z)", node("SBFF (Input (3), 2, 3).Eh", "Sigmoid")),
    C(200, "Macros are expressions: a node or a dictionary", node("[ FF (x, w, b) = w * x + b ; r = FF (Input (3), Parameter (2, 3), Parameter (2)) ].r", "Plus")),
    C(201, "A network is defined in a loop, of any depth", lambda: sum(n.operation == "Sigmoid" for n in network(f"x = Input (2) ; {STACK} ; z = layers[3].Eh").nodes.values()) == 3),
    C(202, "numLayers = 7", lambda: sum(n.operation == "Sigmoid" for n in timit("TIMIT_TrainNDL").network.nodes.values()) == 6),
    C(203, "layers = array [0..numLayers] ( layer => ...)", stands_in("timit.bs", "layers = array [0..numLayers] ( layer =>")),
    C(203, "An element uses those before it", lambda: network(f"x = Input (2) ; {STACK} ; z = Tanh (layers[3].Eh)").find("z").inputs[0].operation == "Sigmoid"),
    C(204, "if layer == 0 then ... else if ...", stands_in("timit.bs", "if layer == 0 then")),
    C(205, "The first layer reads featDim rows", lambda: parameter_shapes()[0] == (512, 792)),
    C(206, "The hidden layers read hiddenDim rows", lambda: parameter_shapes()[1:6] == [(512, 512)] * 5),
    C(207, "The last one gives labelDim rows", lambda: parameter_shapes()[6] == (183, 512)),
    C(208, "outZ = layers[numLayers].z", lambda: shape_of(timit("TIMIT_TrainNDL").network, "CE") is not None and timit("TIMIT_TrainNDL").network.find("CE").inputs[1].operation == "Plus"),
    C(208, "The member's name cannot be left out", wrong("[ a = [ z = 1 ] ; r = a + 1 ].r", "cannot be applied")),
    C(210, "HiddenStack(layer) is a recursion", is_("[ H (n) = if n > 1 then H (n-1) : n else 1 ; r = Length (H (4)) ].r", 4.0)),
    C(210, "of networks, too", lambda: sum(n.operation == "Sigmoid" for n in network("x = Input (2) ; H (n) = if n > 1 then SBFF (H (n-1).Eh, 2, 2) else SBFF (x, 2, 2) ; z = Tanh (H (3).Eh)").nodes.values()) == 3),
    C(211, "outZ = BFF(HiddenStack(numlayers).Eh, labelDim, hiddenDim)", stands_in("timit.bs", "BFF(HiddenStack(numLayers-1).Eh, labelDim, hiddenDim)")),
    C(213, "CE = CrossEntropyWithSoftmax(myLabels, outZ)", lambda: timit("TIMIT_TrainNDL").network.find("CE").operation == "CrossEntropyWithSoftmax"),
    C(214, "Err = ErrorPrediction(myLabels, outZ)", lambda: timit("TIMIT_TrainNDL").network.find("Err").operation == "ClassificationError"),
    C(216, "logPrior = LogPrior(myLabels)", lambda: timit("TIMIT_TrainNDL").network.find("logPrior").operation == "Log"),
    C(217, "ScaledLogLikelihood = outZ - logPrior", lambda: timit("TIMIT_TrainNDL").network.find("ScaledLogLikelihood").operation == "Minus"),
    C(219, "new SGDOptimizer [ ... ]", lambda: "SGD" in timit().config),
    C(220, "epochSize = 0", lambda: sgd("epochSize") == ["0"]),
    C(220, "0 is its default: all samples", lambda: options("maxEpochs = 5 ; learningRatesPerMB = 1").epoch_size is None),
    C(221, "minibatchSize = 256 : 1024", lambda: sgd("minibatchSize") == ["256", "1024"]),
    C(222, "learningRatesPerMB = 0.8 : Repeat(3.2,14) : 0.08", lambda: sgd("learningRatesPerMB") == ["0.8", *["3.2"] * 14, "0.08"]),
    C(222, "The same by the library's Repeat", lambda: len(v("0.8 : Repeat(3.2,14) : 0.08")) == 16),
    C(223, "momentumPerMB = 0.9", lambda: sgd("momentumPerMB") == ["0.9"]),
    C(223, "0.9 is its default", lambda: list(options("maxEpochs = 5 ; learningRatesPerMB = 1").momenta) == [0.9]),
    C(224, "dropoutRate = 0.0", lambda: sgd("dropoutRate") == ["0"]),
    C(225, "maxEpochs = 25", lambda: sgd("maxEpochs") == ["25"]),
    C(225, "It is required", lambda: fails(lambda: options("learningRatesPerMB = 1"), "maxEpochs")),
    C(227, "trainingCriterion = model.network.CE", lambda: timit("TIMIT_TrainNDL").network.groups["criterion"] == [timit("TIMIT_TrainNDL").network.find("CE")]),
    C(230, "readerType needs not be said", lambda: "readerType" not in redesigned() and reader("readerType") == "HTKMLFReader"),
    C(229, "new RandomizingSource [ ... ]", lambda: reader("readerType") == "HTKMLFReader"),
    C(232, "dataSetFile is a list of utterances", lambda: action_of(redesigned("dataSetFile = 'all.scp'").replace('scpFile = "a.scp" ; ', "")).config.section("reader").section("features").string("scpFile") == "all.scp"),
    C(233, "streams connects readers with input nodes", lambda: action_of(redesigned(STREAMS)).config.section("reader").section("features").int("dim") == 2),
    C(234, "reader = features", lambda: fails(lambda: read(redesigned(STREAMS.replace("reader = labels", "readr = labels"))), "'reader' must be")),
    C(235, "input = model.network.myFeatures", lambda: fails(lambda: read(redesigned(STREAMS.replace("; input = model.network.labels", ""))), "'input' of a stream must be")),
    C(235, "The stream feeds that node", lambda: timit("TIMIT_TrainNDL").config.section("reader").section("myFeatures").int("dim") == 792),
    C(237, "reader = labels", lambda: timit("TIMIT_TrainNDL").config.section("reader").section("myLabels").string("mlfFile") == "m/TIMIT.train.align_cistate.mlf.cntk"),
    C(238, "input = model.network.myLabels", lambda: timit("TIMIT_TrainNDL").config.section("reader").has("myLabels")),
    C(236, "Several streams are joined by :", lambda: timit("TIMIT_TrainNDL").config.section("reader").section("myLabels").int("labelDim") == 183),
    C(239, "Parentheses are for readers alone", is_("( 1 : 2 )", [1.0, 2.0])),
    C(240, "readMethod = 'blockRandomize'", lambda: reader("readMethod") == "blockRandomize"),
    C(241, "miniBatchMode = 'Partial'", lambda: reader("miniBatchMode") == "Partial"),
    C(242, "randomize = 'Auto'", lambda: reader("randomize") == "Auto"),
    C(243, "verbosity = 1 is read, and changes nothing", lambda: read(redesigned("verbosity = 1"))[1] == [] and "verbosity" not in action_of(redesigned("verbosity = 1")).config.section("reader")),
    C(245, "Readers may be defined outside of the source", lambda: outside()),
    C(247, "new HTKFeatReader [ ... ]", lambda: reader("scpFile", "features") != "" and value("new HTKFeatReader []").type == "HTKFeatReader"),
    C(249, "scpFile = dataSetFile: the source's own list", lambda: reader("scpFile", "features") == "s/TIMIT.train.scp.fbank792"),
    C(250, "data = new ComputeNodeRef [ dim = 792 ]", lambda: reader("dim", "features") == "792"),
    C(251, "new HTKMLFReader [ ... ]", lambda: value("new HTKMLFReader []").type == "HTKMLFReader"),
    C(252, "mlfFile is a path", lambda: reader("mlfFile", "labels") == "m/TIMIT.train.align_cistate.mlf.cntk"),
    C(254, "labelMappingFile is a path", lambda: reader("labelMappingFile", "labels") == "m/TIMIT.statelist"),
    C(255, "data = new ComputeNodeRef [ dim = 183 ]", lambda: reader("labelDim", "labels") == "183"),
    C(255, "The example is read without a warning", lambda: example("timit.bs")["told"] == []),
    # -- example 2
    C(256, "The example of a bidirectional RNN is read without a warning", lambda: small() and example("bidirectional.bs", ("Train.T", "5"), ("Train.model.network.hiddenDim", "16"), ("Train.model.network.numHiddenLayers", "2"))["told"] == []),
    C(259, "hiddenDim = 512", stands_in("bidirectional.bs", "hiddenDim = 512")),
    C(260, "numHiddenLayers = 6", stands_in("bidirectional.bs", "numHiddenLayers = 6")),
    C(261, "T = 41", stands_in("bidirectional.bs", "T = 41")),
    C(263, "myFeatures = source.features.data", lambda: shape_of(small(), "myFeatures")[0] == 120),
    C(264, "myLabels = source.labels.data", lambda: shape_of(small(), "myLabels")[0] == 183),
    C(266, "augmentedFeatDim = myFeatures.dim", stands_in("bidirectional.bs", "augmentedFeatDim = myFeatures.dim")),
    C(267, "labelDim = myLabels.dim", stands_in("bidirectional.bs", "labelDim = myLabels.dim")),
    C(268, "centerT = Floor(T/2)", is_("[ T = 41 ; centerT = Floor(T/2) ].centerT", 20.0)),
    C(269, "featDim = Floor(augmentedFeatDim / T)", is_("[ d = 984 ; T = 41 ; r = Floor(d / T) ].r", 24.0)),
    C(271, "RowSlice(t * featDim, featDim, myFeatures) for each frame", lambda: sum(n.operation == "Slice" for n in small().nodes.values()) == 5),
    C(274, "layers = array [1..numHiddenLayers] (layer => [ ... ])", stands_in("bidirectional.bs", "layers = array [1..numHiddenLayers] (layer => [")),
    C(276, "W_fwd = Parameter(hiddenDim, featDim)", lambda: shapes(small())[(16, 24)] == 1),
    C(277, "W_bwd is evaluated from the second layer on", lambda: not any("layers[1].W_bwd" in name for name in small().nodes) and any("layers[2].W_bwd" in name for name in small().nodes)),
    C(277, "Fail(\"no W_bwd\") is not reached", stands_in("bidirectional.bs", 'else Fail("no W_bwd")')),
    C(278, "H_fwd = Parameter(hiddenDim, hiddenDim)", lambda: any("layers[1].H_fwd" in name for name in small().nodes)),
    C(279, "H_bwd = Parameter(hiddenDim, hiddenDim)", lambda: any("layers[1].H_bwd" in name for name in small().nodes)),
    C(280, "b = Parameter(hiddenDim, 1)", lambda: shapes(small())[(16, 1)] == 2),
    C(282, "z_shared is an array of frames", stands_in("bidirectional.bs", "z_shared = array [0..T-1] (t =>")),
    C(283, "The first layer reads the frames", stands_in("bidirectional.bs", "W_fwd * subframes[t] + b")),
    C(285, "The last layer does not need all frames", lambda: sum(n.operation == "Sigmoid" for n in small().nodes.values()) == 5 + 5 + 3 + 3),
    C(286, "step(H,h,dt,t) = Sigmoid(if ... then ... else ...)", stands_in("bidirectional.bs", "step(H,h,dt,t) = Sigmoid(if (t+dt >= 0 && t+dt < T) then z_shared[t] + H * h[t+dt] else z_shared[t])")),
    C(288, "h_fwd passes itself to a macro, lazily", is_("[ step (h, t) = if t == 0 then 1 else h[t-1] * 2 ; h = array [0..4] (t => step (h, t)) ; r = h[4] ].r", 16.0)),
    C(289, "h_bwd goes backward, with other bounds", is_("[ step (h, t) = if t == 4 then 1 else h[t+1] * 2 ; h = array [2..4] (t => step (h, t)) ; r = h[2] ].r", 4.0)),
    C(291, "outZ = [ ... ].z", stands_in("bidirectional.bs", "].z")),
    C(293, "W_fwd = Parameter(labelDim, hiddenDim)", lambda: shapes(small())[(183, 16)] == 2),
    C(294, "W_bwd = Parameter(labelDim, hiddenDim)", lambda: any(n == "outZ.W_bwd" for n in small().nodes)),
    C(295, "b = Parameter(labelDim, 1)", lambda: shapes(small())[(183, 1)] == 1),
    C(297, "topHiddenLayer = layers[numHiddenLayers]", stands_in("bidirectional.bs", "topHiddenLayer = layers[numHiddenLayers]")),
    C(298, "z reads both states of the center frame", lambda: shape_of(small(), "outZ")[0] == 183),
    C(299, "The other members of the dictionary do not matter", is_("[ other = Fail ('no') ; z = 2 ].z", 2.0)),
    C(301, "CE = CrossEntropyWithSoftmax(myLabels, outZ)", lambda: small().find("CE").operation == "CrossEntropyWithSoftmax"),
    C(302, "Err = ErrorPrediction(myLabels, outZ)", lambda: small().find("Err").operation == "ClassificationError"),
    C(304, "logPrior = LogPrior(myLabels)", lambda: small().find("logPrior").operation == "Log"),
    C(305, "ScaledLogLikelihood = outZ - logPrior", lambda: [n.name for n in small().find("ScaledLogLikelihood").inputs] == ["outZ", "logPrior"]),
]  # fmt: skip


def in_order(net: Any) -> list[Any]:
    net.validate()
    return sorted(net.nodes.values(), key=lambda n: n.name)


def criterion_reads_labels() -> bool:
    node_ = timit().network.groups["criterion"][0]
    return node_.inputs[0] in timit().network.groups["label"]


def filled(text: str) -> float:
    return float(v(text).attributes["value"])


def parameter_shapes() -> list[tuple[int, ...]]:
    """The shapes of the weights of the layers of the NDL network, from the first on."""
    net = timit("TIMIT_TrainNDL").network
    net.validate()
    names = [f"layers[{i}]" for i in range(1, 8)]
    found = []
    for name in names:
        found += [
            n.shape for n in net.nodes.values() if n.name.startswith(name) and n.name.endswith(".W")
        ]
    return found


def shapes(net: Any) -> dict[tuple[int, ...], int]:
    """How many parameters of each shape a network has."""
    net.validate()
    counts: dict[tuple[int, ...], int] = {}
    for each in net.nodes.values():
        if each.operation == "LearnableParameter":
            counts[each.shape] = counts.get(each.shape, 0) + 1
    return counts


def outside() -> bool:
    """Whether a source may use readers that stand in the action around it."""
    text = redesigned()
    start = text.index("        features = new")
    end = text.index("\n    ]", start)
    readers = text[start:end]
    text = text.replace(
        readers,
        "        streams = ([ reader = features ; input = features.data ] : [ reader = labels ; input = labels.data ])",
    )
    text = text.replace("    source = new", readers + "\n    source = new")
    text = text.replace("source.features", "features").replace("source.labels", "labels")
    return action_of(text).name == "train"


DOCUMENT = Document("004", "The redesigned configuration language", CLAIMS)
