"""Options of nnet3 programs that ask for work out of all proportion."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from opscope.framework.base.errors import FormatError
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.network.simple_request import simple_request
from opscope.python_api.cli.main import main


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nnet3-get-egs --num-pdfs=5 --num-frames=2147483647 ark:a ark:b ark:o", "num-frames goes"),
        ("nnet3-get-egs --num-pdfs=5 --left-context=2147483647 ark:a ark:b ark:o", "100000"),
        ("nnet3-copy-egs --keep-proportion=1e9 ark:egs.ark ark:o", "from 0 to 1000"),
        ("nnet-get-feature-transform --dim=2 --within-class-factor=nan out lda", "from 0 on"),
    ],
)
def test_options_out_of_all_proportion(line: str, words: str) -> None:
    """Finds of the campaign: they took minutes, or memory that no machine has."""
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == 1 and words in result.output


def test_a_request_that_no_memory_holds() -> None:
    config = "input-node name=input dim=1\noutput-node name=output input=input\n"
    nnet = Nnet.from_config_text(config, 0)
    with pytest.raises(FormatError, match="1000000000 frames: .*fill=NUMBER"):
        simple_request(nnet, 1_000_000_000)
