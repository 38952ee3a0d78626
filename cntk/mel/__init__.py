"""MEL, CNTK's model editing language: parser, printer, and the session that a script runs in.

Gives `edit_section` and `run_script` to actions and programs. May import ndl and models.
"""

from .edit import edit_section
from .parse import parse_mel, parse_mel_file
from .run import run_script
from .session import Session
from .syntax import format_mel

__all__ = ["Session", "edit_section", "format_mel", "parse_mel", "parse_mel_file", "run_script"]
