"""extract-segments: parts of recordings. Source: Kaldi's `featbin/extract-segments.cc`."""

from __future__ import annotations

from types import SimpleNamespace

from ....nnet3.programs.base.program import Option, program
from ....nnet3.programs.base.table_copies import write_table
from ...audio.segments import read_segments, segmented
from ...audio.wav import WAVE


@program(
    "extract-segments",
    "Extract segments from audio files in WAV format. A line of the segments file is <segment-id>"
    " <recording-id> <start-time> <end-time> [<channel>], with times in seconds; an end of -1 is"
    " the end of the recording.",
    ("<wav-rspecifier>", "<segments-file>", "<wav-wspecifier>"),
    Option("min-segment-length", 0.1, "Least length of a segment, in seconds"),
    Option("max-overshoot", 0.5, "Seconds by which a segment may end after its recording"),
)
def extract_segments(options: SimpleNamespace, source: str, segments: str, output: str) -> None:
    bounds = options.min_segment_length, options.max_overshoot
    done = write_table(output, WAVE, segmented(source, segments, *bounds))
    options.program.log(
        f"Successfully processed {done} lines out of {len(read_segments(segments))} in the segments"
        " file. "
    )
