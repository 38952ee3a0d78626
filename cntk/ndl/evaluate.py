"""Evaluation of NDL: from statements to the nodes of a network.

CNTK's documentation lists the phases. Parsing is done (`parse`). The first evaluation makes
a node for every call of a node function; `connect`, the second, gives the nodes their inputs, so a
delay may read nodes that are defined further down; the network is validated; `finish`, the last,
numbers the random parameters. Node names are dot paths: `L1.lin.W` is `W` in the macro called as
`lin` in the macro called as `L1`. Calls without a name have CNTK's numbers (`numbering`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from ...framework.base.errors import (
    AttributeTypeError,
    CycleError,
    FormatError,
    OpscopeError,
    SlotError,
    UnknownOperatorError,
    VariableError,
    nearest,
)
from ...framework.base.untrusted.limits import check_limit, limit
from ..base.text import MOST_ERRORS, Location, extended, located
from ..network.catalog import ndl_function, ndl_names
from ..network.graph import GROUPS, group_of_tag
from ..network.network import Network
from ..network.nodes.node import NdlFunction, Node
from .macros import DEEPEST, Macros
from .numbering import DEEPEST_CALL, Numbering
from .scope import Instance, Scope, Symbol, Value, number_of, plain, read_options, reduce
from .syntax import Array, Assignment, Call, Expression, Macro, Option, Script, Word, place

RANDOM = ("uniform", "gaussian", "heNormal")  # values of `init` that draw numbers
INIT = {name.lower(): name for name in (*RANDOM, "fixedValue", "fromFile", "bilinear")}

# Names that list the nodes of a group, in the order CNTK looks at them.
SPECIAL = {
    "featurenodes": "feature",
    "labelnodes": "label",
    "criterionnodes": "criterion",
    "evalnodes": "evaluation",
    "outputnodes": "output",
    "criterianodes": "criterion",
}


class Evaluator:
    """Evaluates scripts into a network.

    Attributes:
        network: gets the nodes; names that NDL does not know are looked up there.
        macros: that calls may use.
        root: the scope of the script itself.
        seeds: numbers of the random parameters, counted over all networks of a run.
        numbering: numbers of the calls without a name.
        warnings: of ignored text, such as an unknown option.
        errors: a list, if a wrong statement shall not be the end: its error is put there, and what
            depends on it is left out.
    """

    def __init__(
        self,
        network: Network,
        macros: Macros | None = None,
        seeds: Iterator[int] | None = None,
        numbering: Numbering | None = None,
    ) -> None:
        self.network = network
        self.macros = macros if macros is not None else Macros()
        self.seeds = seeds if seeds is not None else count(1)
        self.numbering = numbering if numbering is not None else Numbering(self.macros)
        self.root = Scope(numbers=self.numbering.root)
        self.warnings: list[str] = []
        self.errors: list[OpscopeError] | None = None
        self._waiting: list[Instance] = []
        self._random: list[Node] = []
        self._scopes: dict[int, tuple[Location, Scope]] = {}
        self._calls = 0
        self._most_calls = limit("nodes")
        self._depth = 0

    # -- first evaluation

    def run(self, script: Script) -> None:
        """Evaluate a script for the first time: macros, names, nodes without their inputs."""
        for macro in script.macros:
            with self._recovered():
                self.macros.define(macro)
        self.numbering.script(script)
        self._declare(script.assignments, self.root)
        self._evaluate(script.assignments, self.root)

    @contextmanager
    def _recovered(self) -> Iterator[None]:
        """A context that keeps errors in `errors`, where there is such a list."""
        try:
            yield
        except OpscopeError as error:
            if self.errors is None or len(self.errors) >= MOST_ERRORS:
                raise
            self.errors.append(error)

    def _declare(
        self, assignments: list[Assignment], scope: Scope, given: frozenset[str] = frozenset()
    ) -> None:
        """Enter the names of a script, before any of them is used; those `given` by a call stay."""
        for assignment in assignments:
            with self._recovered():
                self._declare_one(assignment, scope, given)

    def _declare_one(self, assignment: Assignment, scope: Scope, given: frozenset[str]) -> None:
        value = assignment.value
        if assignment.name is None:
            return
        name = assignment.name.string
        if isinstance(value, Call):
            scope.names[value] = name
        if name.lower() in given:
            return
        if ndl_function(name) is not None:
            raise self._error(
                VariableError,
                f"variable {name} is invalid, it is reserved because it is also the name of a "
                "function",
                assignment.name.locate(),
                scope,
            )
        old = scope.symbols.get(name.lower())
        if old is not None:
            raise self._error(
                VariableError,
                f"Symbol '{name}' currently assigned to '{old.value}' reassigning to a "
                "different value not allowed",
                assignment.name.locate(),
                scope,
                [("it is assigned at", old.location)],
            )
        scope.symbols[name.lower()] = Symbol(name, value, scope, assignment.name.locate())
        if isinstance(value, Word):
            self._rename(value, name, scope)

    def _rename(self, word: Word, name: str, scope: Scope) -> None:
        """`OutputNodes = ol`: a call that gets a second name has its nodes under that one."""
        symbol = scope.symbols.get(word.string.lower())
        if symbol is not None and symbol.scope is scope and isinstance(symbol.value, Call):
            scope.names[symbol.value] = name

    def _evaluate(self, assignments: list[Assignment], scope: Scope) -> None:
        for assignment in assignments:
            if isinstance(assignment.value, Call):
                with self._recovered():
                    self._instantiate(assignment.value, scope)
                    scope.last = assignment.value

    def _instantiate(self, call: Call, scope: Scope) -> Instance:
        known = scope.instances.get(call)
        if known is not None:
            return known
        if self._depth >= DEEPEST_CALL:
            message = f"more than {DEEPEST_CALL} calls inside one another, macros included"
            raise self._error(FormatError, message, place(call), scope)
        self._depth += 1
        try:
            return self._evaluated(call, scope)
        finally:
            self._depth -= 1

    def _evaluated(self, call: Call, scope: Scope) -> Instance:
        self._calls += 1
        if self._calls > self._most_calls:
            try:
                check_limit("nodes", self._calls, "calls of one network")
            except FormatError as error:
                raise self._error(FormatError, str(error), place(call), scope) from None
        name = scope.path(scope.names.get(call) or self._new_name(call, scope))
        instance = Instance(name, call, scope)
        macro = self.macros.find(call.function.string)
        if macro is not None:
            scope.instances[call] = instance
            self._call_macro(instance, macro)
            return instance
        function = ndl_function(call.function.string)
        if function is None:
            known_names = [*self.macros.names(), *ndl_names()]
            raise self._error(
                UnknownOperatorError,
                f"Undefined function or macro '{call.function}' in {call.text}"
                f"{nearest(call.function.string, known_names)}",
                place(call),
                scope,
            )
        self._make_node(instance, function)
        scope.instances[call] = instance
        for parameter in call.parameters:
            if isinstance(parameter, Call):
                self._instantiate(parameter, scope)
        return instance

    def _new_name(self, call: Call, scope: Scope) -> str:
        name = f"unnamed{self.numbering.number(call, scope.numbers)}"
        while scope.path(name) in self.network:  # of a model that was loaded
            name = f"unnamed{self.numbering.next()}"
        return name

    def _call_macro(self, instance: Instance, macro: Macro) -> None:
        call, scope = instance.call, instance.scope
        open_macros = [around.macro for around in scope.callers() if around.macro is not None]
        if macro in open_macros:
            names = [m.name.string for m in open_macros[: open_macros.index(macro) + 1][::-1]]
            raise self._error(
                CycleError,
                f"macro {macro.name} calls itself: {' -> '.join([*names, macro.name.string])}",
                place(call),
                scope,
            )
        if len(open_macros) >= DEEPEST:
            raise self._error(
                CycleError, f"more than {DEEPEST} macros inside one another", place(call), scope
            )
        inner = Scope(
            instance.name,
            numbers=self.numbering.of_body(scope.numbers, call),
            macro=macro,
            caller=scope,
            called_at=place(call),
        )
        instance.inner = inner
        self._bind(instance, macro, inner)
        for symbol in list(inner.symbols.values()):
            if isinstance(symbol.value, Call):
                self._instantiate(symbol.value, symbol.scope)
        assignments = macro.body.assignments
        self._declare(assignments, inner, frozenset(inner.symbols))
        self._evaluate(assignments, inner)
        self._waiting.append(instance)

    def _bind(self, instance: Instance, macro: Macro, inner: Scope) -> None:
        """Enter the parameters of a macro into the scope of its body."""
        call, scope = instance.call, instance.scope
        options = {option.name.string.lower(): option for option in call.options}
        names = macro.names()
        missing = []
        for number, (name, formal) in enumerate(zip(names, macro.parameters, strict=True)):
            option = options.pop(name.lower(), None)
            value: Expression
            if number < len(call.parameters):
                value = call.parameters[number]
                where = scope
            elif option is not None:
                value = option.value
                where = scope
            elif isinstance(formal, Option):
                value = formal.value
                where = inner
            else:
                missing.append(name)
                continue
            inner.symbols[name.lower()] = Symbol(name, value, where, place(value))
        if missing or len(call.parameters) > len(names):
            raise self._error(
                SlotError,
                f"Parameter mismatch, {len(call.parameters)} parameters provided, "
                f"{len(names)} expected in call to {macro.name}({', '.join(names)})",
                place(call),
                scope,
                [("the macro is defined at", macro.name.locate())],
            )
        for option in options.values():
            name = option.name.string
            if name.lower() != "tag":
                inner.symbols[name.lower()] = Symbol(name, option.value, scope, place(option))

    def _make_node(self, instance: Instance, function: NdlFunction) -> None:
        call, scope = instance.call, instance.scope
        wrong = function.count_error(len(call.parameters))
        if wrong:
            raise self._error(SlotError, wrong, place(call), scope)
        if function.operation.endswith("InputValue") and instance.name in self.network:
            instance.node = self.network.find(instance.name)
            return
        values = [reduce(parameter, scope) for parameter in call.parameters]
        nodes = function.nodes([number_of(value) is not None for value in values])
        given = [
            plain(value, parameter, scope)
            for number, (value, parameter) in enumerate(zip(values, call.parameters, strict=True))
            if number not in nodes
        ]
        options = read_options(call, function, scope, self.warnings)
        location = place(call)
        if location is not None:
            self._scopes[id(location)] = (location, scope)
        with self.explained():
            try:
                attributes = dict(function.attributes(given, options))
            except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
                usage = f"; usage: {function.usage}" if function.usage else ""
                raise located(
                    AttributeTypeError,
                    f"{instance.name}: {function.name}: {error}{usage}",
                    location,
                ) from None
            instance.node = self.network.add(
                function.operation, instance.name, attributes=attributes, location=location
            )
        if instance.node.is_parameter:
            self._check_init(instance.node, call, scope)
        self._waiting.append(instance)

    def _check_init(self, node: Node, call: Call, scope: Scope) -> None:
        init = INIT.get(str(node.attributes["init"]).lower())
        if init is None:
            raise self._error(
                AttributeTypeError,
                "'init' must be one of the values of [ uniform | gaussian | fixedValue | fromFile "
                f"| heNormal | bilinear], not {node.attributes['init']!r}",
                place(call),
                scope,
            )
        node.attributes["init"] = init
        if init == "fromFile" and not node.attributes["initFromFilePath"]:
            raise self._error(
                AttributeTypeError,
                'initFromFilePath must be set when using "fromFile" initialization method',
                place(call),
                scope,
            )
        if call not in scope.names and init != "fixedValue":
            node.attributes.update(init="fixedValue", value=0.0)
            self.warnings.append(
                str(
                    self._error(
                        AttributeTypeError,
                        "a Parameter without a name of its own starts at 0, as in CNTK",
                        place(call),
                        scope,
                    )
                )
            )
        elif init in RANDOM and node.attributes["randomSeed"] < 0:
            self._random.append(node)

    # -- second evaluation

    def connect(self) -> None:
        """Give the nodes made since the last call their inputs, and put them into their groups."""
        waiting = self._waiting
        self._waiting = []
        for instance in waiting:
            if instance.inner is not None:
                instance.node = self._returned(instance.inner)
        for instance in waiting:
            with self._recovered():
                if instance.inner is None:
                    self._connect(instance)
                self._tag(instance)
        with self._recovered():
            self._special()

    def _returned(self, inner: Scope) -> Node | None:
        """The node that a macro returns: the one of the macro's own name, or its last call."""
        assert inner.macro is not None
        named = inner.symbols.get(inner.macro.name.string.lower())
        value: Value = None
        if named is not None:
            value = reduce(named.value, named.scope)
        if not isinstance(value, Instance) and inner.last is not None:
            value = inner.instances[inner.last]
        while isinstance(value, Instance) and value.inner is not None and value.node is None:
            last = value.inner.last
            value = value.inner.instances[last] if last is not None else None
        return value.node if isinstance(value, Instance) else None

    def _connect(self, instance: Instance) -> None:
        call, scope = instance.call, instance.scope
        function = ndl_function(call.function.string)
        assert function is not None and instance.node is not None
        values = [reduce(parameter, scope) for parameter in call.parameters]
        nodes = function.nodes([number_of(value) is not None for value in values])
        inputs = [self._input(values[n], call.parameters[n], call, scope) for n in nodes]
        if self.errors and None in inputs:
            return  # it reads a wrong statement, whose error is there already
        if inputs or instance.node.kind.inputs[0]:
            with self.explained():
                self.network.connect(instance.node, inputs)

    def _input(self, value: Value, parameter: Expression, call: Call, scope: Scope) -> Node | None:
        if isinstance(value, Instance) and value.node is not None:
            return value.node
        if self.errors and (value is None or isinstance(value, Instance)):
            return None
        if isinstance(value, tuple) and isinstance(value[0], Word) and value[0].number is None:
            name = value[0].string
            if name in self.network:
                return self.network.find(name)
            known = [s.name for around in scope.callers() for s in around.symbols.values()]
            raise self._error(
                VariableError,
                f"Parameter name could not be resolved '{name}'{nearest(name, known)}",
                place(parameter),
                scope,
            )
        hint = ""
        if number_of(value) is not None:
            hint = f"; a number as a node is written Constant({parameter})"
        raise self._error(
            SlotError,
            f"{call.function} needs a node, '{parameter}' is none{hint}",
            place(parameter),
            scope,
        )

    def _tag(self, instance: Instance) -> None:
        for option in instance.call.options:
            if option.name.string.lower() != "tag" or instance.node is None:
                continue
            tag = option.value.string if isinstance(option.value, Word) else str(option.value)
            if tag.lower() == "multiseq":
                continue  # an older CNTK's; it means nothing now
            group = group_of_tag(tag)
            if group is None:
                raise self._error(
                    AttributeTypeError,
                    f"Invalid group tag '{tag}', must be one of {', '.join(GROUPS)}",
                    place(option),
                    instance.scope,
                )
            instance.node.tags.append(group)
            self.network.add_to_group(group, instance.node)

    def _special(self) -> None:
        """`FeatureNodes = (...)` and its like."""
        for lower, group in SPECIAL.items():
            symbol = self.root.symbols.get(lower)
            if symbol is None:
                continue
            items = symbol.value.items if isinstance(symbol.value, Array) else (symbol.value,)
            for item in items:
                value = reduce(item, symbol.scope)
                node = value.node if isinstance(value, Instance) else None
                if isinstance(value, tuple) and isinstance(value[0], Word):
                    name = value[0].string
                    node = self.network.find(name) if name in self.network else None
                if node is None:
                    raise self._error(
                        VariableError,
                        f"Invalid node '{item}' as a(n) {group} node, nonexistant or wrong type",
                        place(item),
                        self.root,
                    )
                self.network.add_to_group(group, node)

    # -- final evaluation

    def finish(self) -> None:
        """Give the random parameters their seeds, in the order of their definition."""
        for node in self._random:
            node.attributes["randomSeed"] = next(self.seeds)
        self._random = []

    # -- errors

    @contextmanager
    def explained(self) -> Iterator[None]:
        """A context in which errors about nodes get the macro calls that led to the node."""
        try:
            yield
        except OpscopeError as error:
            origin = self._scopes.get(id(getattr(error, "location", None)))
            if origin is None or origin[1].macro is None:
                raise
            raise extended(error, origin[1].chain()) from None

    def _error(
        self,
        error_class: type[OpscopeError],
        message: str,
        location: Location | None,
        scope: Scope,
        chain: list[tuple[str, Location | None]] | None = None,
    ) -> OpscopeError:
        return located(error_class, message, location, (chain or []) + scope.chain())
