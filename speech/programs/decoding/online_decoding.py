"""online2-wav-nnet3-latgen-faster.

Source: Kaldi's `online2bin/online2-wav-nnet3-latgen-faster.cc`, `online2/online-nnet3-decoding.cc`.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError, RunError
from ....kaldi.lattices.lattice import CompactLattice
from ....kaldi.lattices.operations import best_path
from ....kaldi.tables.tables import TableWriter
from ....nnet3 import LoopedComputer, LoopedOptions
from ....nnet3.programs.base.options import DEBUG, GPU, UNUSED, chosen_place, errors_tell
from ....nnet3.programs.base.passes import chosen_passes, optimization_options
from ....nnet3.programs.base.program import Option, from_values, options_of, program
from ....nnet3.programs.base.saving import fail_unless
from ....nnet3.programs.base.speakers import BySpeaker
from ...audio.wav import WAVE, Audio
from ...fst.graph import StaticGraph
from ...ivector.online import OnlineIvector
from ...ivector.silence import SilenceWeights
from ...recognize.endpoint import ENDPOINT, endpoint
from ...recognize.traced_silence import TracedSilence
from ...search.decoder import Decoder
from ...search.options import DECODING_SCALE
from ...search.raw_lattice import raw_lattice
from .acoustic_model import AcousticModel, SpokenWords, read_graph
from .decoder_options import (
    DECODER,
    SYMBOLS,
    WEIGHTING,
    determinize_options,
    endpoint_options,
    phone_list,
    search_options,
)
from .online_parts import OnlineParts, Speaker, SpeakerFront, read_features, read_parts
from .online_timing import Timer, TimingStats, ratio
from .whole_lattices import determinized_lattice


@program(
    "online2-wav-nnet3-latgen-faster",
    "Reads in wav file(s) and simulates online decoding with neural nets (nnet3 setup), with"
    " optional iVector-based speaker adaptation and optional endpointing. Some values come from"
    " config files that options name. The spk2utt-rspecifier can just be <utterance-id>"
    " <utterance-id> to decode utterance by utterance.",
    (
        "<nnet3-in>",
        "<fst-in>",
        "<spk2utt-rspecifier>",
        "<wav-rspecifier>",
        "<lattice-wspecifier>",
    ),
    Option("chunk-length", 0.18, "Seconds that are processed at once (<= 0: all there is)"),
    SYMBOLS,
    Option("do-endpointing", False, "Stop where an utterance is over; what follows is left out"),
    Option(
        "online",
        True,
        "If false, iVectors are estimated from the whole of each utterance, as with"
        " --use-most-recent-ivector=true and --greedy-ivector-extractor=true in the file of"
        " --ivector-extraction-config and --chunk-length=-1",
    ),
    Option("num-threads-startup", 8, UNUSED),
    Option("feature-type", "mfcc", "Features: mfcc, plp or fbank"),
    Option("mfcc-config", "", "Config file of MFCC, e.g. conf/mfcc.conf"),
    Option("plp-config", "", "Config file of PLP, e.g. conf/plp.conf"),
    Option("fbank-config", "", "Config file of filter banks, e.g. conf/fbank.conf"),
    Option("cmvn-config", "", "Config file of online CMVN, for the network's features alone"),
    Option("global-cmvn-stats", "", "Global statistics for online CMVN"),
    Option("add-pitch", False, "Features of the pitch too, for the network alone"),
    Option("online-pitch-config", "", "Config file of the pitch, e.g. conf/online_pitch.conf"),
    Option("ivector-extraction-config", "", "Config file of iVectors, e.g. ivector_extractor.conf"),
    *WEIGHTING,
    *options_of(LoopedOptions(acoustic_scale=DECODING_SCALE)),
    *DECODER,
    *ENDPOINT,
    GPU,
    *DEBUG,
    *optimization_options(),
)
def online2_wav_nnet3_latgen_faster(
    options: SimpleNamespace, model: str, graph: str, speakers: str, waves: str, lattices: str
) -> None:
    _check(options)
    features, pitch = read_features(options)
    acoustic = AcousticModel.read(model)
    cut = from_values(LoopedOptions, vars(options))
    with errors_tell(model):
        how = True, chosen_place(options.use_gpu), chosen_passes(options)
        network = LoopedComputer(acoustic.network, cut, *how)
    parts = read_parts(options, features, pitch, network)
    static = acoustic.checked(read_graph(graph), graph)
    decoding = _Decoding(options, acoustic, parts, static)
    heard = BySpeaker(options, speakers, waves, WAVE, "Did not find audio for utterance")
    with TableWriter(lattices, "compact_lattice") as writer:
        for _, utterances in heard:
            speaker = Speaker.unknown(parts)
            for key, audio in utterances:
                with errors_tell(f"{waves}: {key}"):
                    known, lattice = decoding.utterance(key, audio, speaker)
                if lattice is not None:
                    speaker = known
                    writer.write(key, lattice)
                    decoding.tell_written(key)
    decoding.tell(writer.count, heard.missing)


def _check(options: SimpleNamespace) -> None:
    """Refuse wrong values before anything is read."""
    search_options(options)
    for name in ("chunk-length", "ivector-silence-weighting.max-state-duration"):
        value = getattr(options, name.replace("-", "_").replace(".", "_"))
        if not math.isfinite(value):
            raise FormatError(f"--{name}={value:g}: a finite number is wanted")
    if not options.determinize_lattice:
        raise FormatError("--determinize-lattice=false option is not supported at the moment")
    if not options.acoustic_scale:
        raise FormatError("--acoustic-scale=0: lattices cannot be written without the scale")
    if options.do_endpointing and not options.endpoint_silence_phones:
        raise FormatError("Endpointing requires nonempty --endpoint.silence-phones option")
    endpoint_options(options)


class _Decoding:
    """Decodes utterances, and counts."""

    def __init__(
        self,
        options: SimpleNamespace,
        model: AcousticModel,
        parts: OnlineParts,
        graph: StaticGraph,
    ) -> None:
        self._options = options
        self._model = model
        self._parts = parts
        self._program = options.program
        self._spoken = SpokenWords(options.word_symbol_table)
        self._search = search_options(options)
        self._passes = determinize_options(options)
        self._endpoint = endpoint_options(options)
        name = "ivector-silence-weighting.silence-phones"
        self._silence = phone_list(options.ivector_silence_weighting_silence_phones, name)
        self._decoder = Decoder(graph, model.pdfs, self._search, outputs=parts.network.output_dim)
        scale = np.float32(options.acoustic_scale)
        self._unscale = float(np.float32(1.0 / float(scale)))
        shift = np.float32(parts.features.options.frame_shift) / np.float32(1000)
        self._shift = float(shift * np.float32(options.frame_subsampling_factor))
        self._timing = TimingStats()
        self._ivectors: OnlineIvector | None = None
        self._failed = 0
        self._frames = 0
        self._likelihood = 0.0

    def utterance(
        self, key: str, audio: Audio, speaker: Speaker
    ) -> tuple[Speaker, CompactLattice | None]:
        """What is known of the speaker then, and the lattice; None: the utterance has failed."""
        speaker_front = SpeakerFront(self._parts, speaker, audio.rate)
        timer = Timer()
        try:
            self._decode(speaker_front, audio, timer)
            if not self._decoder.frames_decoded:
                raise RunError("You cannot get a lattice if you decoded no frames.")
            self._decoder.finalize()
            raw = raw_lattice(self._decoder)
        except RunError as error:
            self._program.warn(f"Failed to decode utterance with id {key}")
            self._program.warn(str(error))
            self._failed += 1
            return speaker, None
        warn = self._program.warn
        beam, starts = self._search.lattice_beam, self._model.starts
        lattice, _ = determinized_lattice(raw, beam, starts, self._passes, warn)
        self._count(key, lattice)
        self._program.vlog(2, self._timing.add(key, timer))
        self._ivectors = speaker_front.ivectors
        return speaker_front.speaker(), lattice.scaled(1.0, self._unscale)

    def _decode(self, speaker_front: SpeakerFront, audio: Audio, timer: Timer) -> None:
        """Follow the recording to its end, or to where the utterance is over."""
        front, decoder, options = speaker_front.front, self._decoder, self._options
        decoder.reset()
        samples = audio.samples[0]  # of the first channel, as in Kaldi
        silence = self._weights()
        step = self._step(audio.rate) or max(len(samples), 1)
        for begin in range(0, len(samples), step):
            end = min(begin + step, len(samples))
            front.accept(samples[begin:end])
            timer.wait_until(end / audio.rate)
            if end == len(samples):
                front.finish()
            if silence is not None and front.takes_weights:
                silence.weigh(front, decoder)
            loglikes = front.loglikes()
            if len(loglikes):
                decoder.accept(loglikes)
            if options.do_endpointing:
                over = endpoint(decoder, self._model.phones, self._endpoint, self._shift)
                if over is not None:
                    self._program.vlog(2, str(over))
                    return

    def _step(self, rate: float) -> int:
        """Samples that are processed at once; 0: all there are."""
        seconds = -1.0 if not self._options.online else self._options.chunk_length
        if seconds <= 0:
            return 0
        return max(int(min(float(np.float32(rate) * np.float32(seconds)), 2.0**31)), 1)

    def _weights(self) -> TracedSilence | None:
        """What lets silence count less; None: nothing does."""
        options = self._options
        weight = options.ivector_silence_weighting_silence_weight
        if not self._silence or weight == 1:
            return None
        longest = options.ivector_silence_weighting_max_state_duration
        factor = options.frame_subsampling_factor
        phones = self._model.phones
        return TracedSilence(SilenceWeights(phones, self._silence, weight, longest, factor))

    def _count(self, key: str, lattice: CompactLattice) -> None:
        """Count an utterance, and log its words."""
        if not lattice.states:
            self._program.warn("Empty lattice.")
            return
        best = best_path(lattice)
        arcs = [group[0] for group in best.arcs if group]
        weights = [arc.weight for arc in arcs] + [best.final[-1]]
        graph = sum(weight.graph for weight in weights if weight)
        acoustic = sum(weight.acoustic for weight in weights if weight)
        frames = sum(len(weight.ids) for weight in weights if weight)
        self._frames += frames
        self._likelihood -= graph + acoustic
        self._program.vlog(
            2,
            f"Likelihood per frame for utterance {key} is {ratio(-graph - acoustic, frames):g} over"
            f" {frames} frames, = {ratio(-graph, frames):g},{ratio(acoustic, frames):g}",
        )
        self._spoken.tell(key, [arc.label for arc in arcs if arc.label])

    def tell_written(self, key: str) -> None:
        """Log that the lattice of the last utterance was written."""
        self._program.log(f"Decoded utterance {key}")
        if self._ivectors is not None:
            self._program.vlog(
                2,
                "By the end of the utterance, objf change/frame from estimating iVector (vs."
                f" default) was {self._ivectors.improvement():g} and iVector length was"
                f" {self._ivectors.length():g}",
            )

    def tell(self, done: int, missing: int) -> None:
        """Log what was done; no output at all is a failure."""
        log = self._program.log
        self._timing.tell(self._options)
        log(f"Decoded {done} utterances, {self._failed + missing} with errors.")
        mean = ratio(self._likelihood, self._frames)
        log(f"Overall likelihood per frame was {mean:g} per frame over {self._frames} frames.")
        fail_unless(done)
