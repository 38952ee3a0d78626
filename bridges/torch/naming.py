"""Names in generated Python: of layers, and of values."""

from __future__ import annotations

import keyword
import re

_OF_MODULES = frozenset(
    """
add_module apply bfloat16 buffers children compile cpu cuda double eval extra_repr float forward
get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules mtia
named_buffers named_children named_modules named_parameters parameters register_buffer
register_module register_parameter requires_grad_ set_extra_state set_submodule share_memory
state_dict to to_empty train training type xpu zero_grad T_destination call_super_init dump_patches
""".split()
)
"""Names of nn.Module that no layer may have."""


class Names:
    """Names that are taken, and how others are made.

    Args:
        taken: names that nothing else may have.
    """

    def __init__(self, *taken: str) -> None:
        self._taken = set(taken)

    def has(self, name: str) -> bool:
        """Whether the identifier of a name is taken."""
        return self._identifier(name) in self._taken

    def unique(self, name: str) -> str:
        """A name as an identifier that no other has."""
        unique_name = plain = self._identifier(name)
        count = 1
        while unique_name in self._taken:
            count += 1
            unique_name = f"{plain}_{count}"
        self._taken.add(unique_name)
        return unique_name

    @staticmethod
    def _identifier(name: str) -> str:
        plain = re.sub(r"_*\W+_*", "_", name, flags=re.ASCII).strip("_") or "value"
        if plain[0].isdigit() or keyword.iskeyword(plain) or plain in _OF_MODULES:
            plain = f"n_{plain}"
        return plain


def plain_text(name: str) -> str:
    """A name from outside without signs that would end a comment or docstring."""
    return "".join(c if c.isalnum() or c in "._-+ []" else "_" for c in name)
