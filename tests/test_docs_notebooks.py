"""The notebooks of the site hold the blocks of their pages, which tests run."""

from __future__ import annotations

from types import ModuleType

import pytest

from doc_blocks import blocks
from package_copy import ROOT


@pytest.fixture(scope="module")
def notebooks() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        import notebooks
    return notebooks


def test_cells_are_the_blocks_of_the_page(notebooks: ModuleType) -> None:
    assert "quick_start" in notebooks.tutorials()
    for name in notebooks.tutorials():
        page = ROOT / "docs" / f"{name}.md"
        made = notebooks.notebook(page)
        code = ["".join(c["source"]) for c in made["cells"] if c["cell_type"] == "code"]
        python = [one for one in code if not one.startswith("%%")]
        found = blocks(page)
        assert python == [b.text.rstrip() for b in found if b.language == "python" and not b.path]
        shown = sum(len(c["outputs"]) for c in made["cells"] if c["cell_type"] == "code")
        assert shown == sum(not b.language and not b.path for b in found)
        assert len({c["id"] for c in made["cells"]}) == len(made["cells"])


def test_a_notebook(notebooks: ModuleType, tmp_path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\nSee [there](other.md#x).\n\n![a curve](images/x.png)\n\n"
        "```python\nprint(1)\n```\n\n```\n1\n```\n\n"
        "This is the whole of `a.txt`:\n\n```text\nhello\n```\n\n"
        "```sh\nopscope version\n```\nEnd.\n"
    )
    cells = notebooks.notebook(page)["cells"]
    assert [(c["cell_type"], "".join(c["source"])) for c in cells] == [
        ("markdown", "# Title\n\nSee there.\n\na curve"),
        ("code", "print(1)"),
        ("markdown", "This is the whole of `a.txt`:"),
        ("code", "%%writefile a.txt\nhello"),
        ("code", "%%sh\nopscope version"),
        ("markdown", "End."),
    ]
    assert cells[1]["outputs"] == [{"output_type": "stream", "name": "stdout", "text": ["1\n"]}]
