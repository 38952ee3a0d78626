"""The examples of docs/brainscript.md give what the page says."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "brainscript.md"


def test_the_example_of_the_page():
    code, output = re.search(
        r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE.read_text(), re.S
    ).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue() == output
