"""CompositeComponent: simple components one after the other."""

from __future__ import annotations

from typing import Any

from .lowering import OUT, Recipe, X, lower_into, lowers


@lowers("CompositeComponent")
def lower_composite_component(component: Any, recipe: Recipe) -> None:
    # Intermediate results are variables like any other; `composite_rows` cuts the rows into pieces.
    source, last = X, len(component.components) - 1
    for number, part in enumerate(component.components):
        path = f"{recipe.path}{number}."
        wanted = recipe.natural_gradient, recipe.statistics
        inner = Recipe((None, -1), *wanted, path=path)
        lower_into(part, inner)
        target = OUT if number == last else recipe.temp()
        names = {X: source, OUT: target}
        names |= {name: recipe.temp() for name in inner.temps()}
        recipe.steps += [step.renamed(names) for step in inner.steps]
        recipe.parameters |= inner.parameters
        recipe.constants |= inner.constants
        recipe.states |= inner.states
        recipe.parts.append((inner, names))
        source = target
