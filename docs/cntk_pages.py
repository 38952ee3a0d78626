"""Pages about CNTK, filled from the catalogs of the package; `reference_pages` calls these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cntk_option_words import COMMANDS, Section
from cntk_options import Option, options_of
from cntk_reader_words import DESERIALIZERS, READERS


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    lines = [list(head)]
    lines.append(["---"] * len(lines[0]))
    lines += [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def nodes() -> Iterator[str]:
    """A section for each kind of node, by family."""
    from opscope.cntk.programs import nodes as told

    for family, kinds in told.node_families().items():
        yield f"## {family.replace('_', ' ')}"
        for kind in kinds:
            yield f"### {kind.operation}\n\n`{told.head_of(kind)}`\n\n{kind.doc}"
            names = []
            if kind.aliases:
                names.append("Older names: " + ", ".join(f"`{name}`" for name in kind.aliases))
            for function in kind.ndl:
                usage = told.ndl_usage(function)
                others = [name for name in function.names if not usage.startswith(f"{name}(")]
                also = "".join(f", `{name}`" for name in others)
                names.append(f"NDL: `{usage}`{also}")
            usages = told.brainscript_usages(kind.operation)
            names += [f"BrainScript: `{usage}`" for usage in usages]
            operators = told.operators_of(kind.operation)
            if operators:
                names.append("Operators: " + ", ".join(f"`{name}`" for name in operators))
            yield "\n".join(f"- {name}" for name in names)
            if kind.attributes:
                yield _attributes("attribute", told.attribute_rows(kind))
            for function in kind.ndl:
                rows = told.option_rows(kind, function)
                if rows:
                    yield _attributes(f"option of `{function.name}` in NDL", rows)


def _attributes(what: str, rows: Iterable[tuple[str, str, str, str]]) -> str:
    cells = ((f"`{name}`", kind, default, doc) for name, kind, default, doc in rows)
    return table((what, "type", "default", "meaning"), cells)


def commands() -> Iterator[str]:
    """The actions with their options, and the sections of networks and training."""
    from opscope.cntk.config.unread import UNUSED

    yield from _sections(COMMANDS)
    yield "## Options that change nothing here"
    yield table(("option", "why"), ((f"`{name}`", reason) for name, reason in UNUSED.items()))


def readers() -> Iterator[str]:
    """The readers and writers with their options, and the deserializers."""
    yield from _sections(READERS)
    for name, takes in DESERIALIZERS.items():
        yield f"### {name}\n\n{takes}"


def _sections(sections: Iterable[Section]) -> Iterator[str]:
    for section in sections:
        yield f"## {section.title}\n\n{section.text}"
        cells = ((f"`{name}`", *told) for name, *told in option_rows(section))
        yield table(("option", "type", "default", "meaning"), cells)


def option_rows(section: Section) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and meaning of the options of a table."""
    known: dict[str, Option] = {}
    for source in section.sources:
        module, *roots = source.split()
        for lower, option in options_of(module, *roots).items():
            known.setdefault(lower, option)
    for line in filter(str.strip, section.words.splitlines()):
        name, *told = (cell.strip() for cell in line.split(" | "))
        if len(told) == 1:
            option = known[name.lower()]
            told = [option.type, option.default or "required", *told]
        yield name, told[0], told[1], told[2]
