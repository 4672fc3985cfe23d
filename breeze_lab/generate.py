"""Text to speech, streamed or whole.

Shapes: F frames, K codebooks.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from .beside import beside
from .checkpoint import SpeechModel
from .checks import check_call, chosen, plain
from .frames import fastest
from .keys import KeySequence
from .loop import Cancel, FrameLoop
from .prompt import PromptBuilder, check_request, split_text, spoken_length
from .voice import Voice

LETTERS_PER_SECOND = 15.0


@dataclass
class Stats:
    """What a chunk or a whole result took. Times are seconds of generation; a consumer's pauses do not count.

    stages: seconds the host spent on "prefill", "frames" (backbone and depth) and on waiting for the "codec".
    first_audio_s: seconds from the call until the first samples were there; for `generate`, until all were.
    host_reads: times the host waited for a value of the frame loop; none where frames are made by the host itself.
    peak_memory_gb: highest memory MLX held since the call began, 1e9 bytes; what `host` lays out is not MLX's.
    """

    frames: int = 0
    audio_seconds: float = 0.0
    seconds: float = 0.0
    first_audio_s: float | None = None
    host_reads: int = 0
    stages: dict[str, float] = field(default_factory=lambda: {"prefill": 0.0, "frames": 0.0, "codec": 0.0})
    peak_memory_gb: float = 0.0

    @property
    def rtf(self) -> float | None:
        """Real-time factor: seconds of work a second of audio; None without audio."""
        return self.seconds / self.audio_seconds if self.audio_seconds else None


@dataclass
class Chunk:
    """A piece of a stream: float32 [n] samples at 24 kHz and their int32 [F, K] codes. The final one may be empty."""

    samples: np.ndarray
    codes: np.ndarray
    is_final: bool
    finish_reason: str | None
    seed: int
    segment: int
    stats: Stats


@dataclass
class Result:
    """Whole speech: float32 [N] samples at 24 kHz, int32 [F, K] codes.

    finish_reason: "eos" (it ended by itself), "max_frames" (a piece of the text was cut at the limit) or "cancelled".
    """

    samples: np.ndarray
    codes: np.ndarray
    finish_reason: str
    seed: int
    stats: Stats


def generate(
    model: SpeechModel,
    text: str,
    *,
    voice: Voice | None = None,
    instruct: str | None = None,
    cfg_scale: float = 1.0,
    seed: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float | None = None,
    max_frames: int = 750,
    method: str | None = None,
    speaker: str = "S0",
    cancel: Cancel | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Speak `text` and return all of it.

    Args:
        model: from `load`.
        voice: whose voice to take; without one, the model makes one up and keeps it through the text.
        instruct: how to say it, in plain words.
        cfg_scale: guidance towards the instruction; 1 is off, 2 to 4 is usual.
        seed: same seed, same speech; drawn and reported where None.
        temperature, top_k, top_p, repetition_penalty: see `Sampling`. None is the checkpoint's own value, in
            `model.sampling`; a number overrides that one alone.
        max_frames: most frames of one piece of text (12.5 a second; 750 is 60 s). Long text is split at sentences.
        method: a rung of the ladder, see `breeze_lab.frames`; None takes the fastest, `frames.fastest`.
        speaker: tag S0 to S9.
        cancel: stops within a frame once set; what was made is returned.
        progress: called with frames done and frames expected (an estimate from the text).

    Raises:
        BreezeLabError: bad input, before any work; or broken weights, when logits are not numbers.
    """
    options = {k: v for k, v in locals().items() if k not in ("model", "text")}
    result = join(list(stream_generate(model, text, chunk_frames=25, **options)))
    result.stats.first_audio_s = result.stats.seconds if result.stats.frames else None
    return result


def join(chunks: Sequence[Chunk]) -> Result:
    """All chunks of one stream, in order, as one result. Its first audio is the first chunk's."""
    stats = Stats(stages=dict.fromkeys(chunks[0].stats.stages, 0.0), first_audio_s=chunks[0].stats.first_audio_s)
    for chunk in chunks:
        part = chunk.stats
        stats.frames += part.frames
        stats.audio_seconds += part.audio_seconds
        stats.seconds += part.seconds
        stats.host_reads += part.host_reads
        stats.stages = {name: seconds + part.stages[name] for name, seconds in stats.stages.items()}
        stats.peak_memory_gb = max(stats.peak_memory_gb, part.peak_memory_gb)
    last = chunks[-1]
    return Result(
        samples=np.concatenate([chunk.samples for chunk in chunks]),
        codes=np.concatenate([chunk.codes for chunk in chunks]),
        finish_reason=last.finish_reason or "eos",
        seed=last.seed,
        stats=stats,
    )


def stream_generate(
    model: SpeechModel,
    text: str,
    *,
    voice: Voice | None = None,
    instruct: str | None = None,
    cfg_scale: float = 1.0,
    seed: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float | None = None,
    max_frames: int = 750,
    method: str | None = None,
    speaker: str = "S0",
    cancel: Cancel | None = None,
    progress: Callable[[int, int], None] | None = None,
    chunk_frames: int = 4,
) -> Iterator[Chunk]:
    """Speak `text` in chunks of `chunk_frames` frames (80 ms each), while it is made. Arguments as `generate`.

    The first two chunks have at most two frames, so that sound starts early; larger ones cost the codec less a frame.
    The chunks joined are what `generate` returns for the same seed. Exactly one chunk, the last, is final.
    Input is checked when this is called, not when the first chunk is asked for. One thread asks for all chunks: MLX's
    streams belong to threads, and one that ends should call `mlx.core.clear_streams()` last, or MLX may abort at exit.
    """
    began = time.perf_counter()
    cfg_scale, seed, max_frames, chunk_frames = map(plain, (cfg_scale, seed, max_frames, chunk_frames))
    whole = {"max_frames": max_frames, "chunk_frames": chunk_frames}
    check_call(model, voice=voice, seed=seed, method=method, cancel=cancel, progress=progress, **whole)
    check_request(text, instruct, cfg_scale, speaker)
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "repetition_penalty": repetition_penalty}
    sampling = chosen(model.sampling, **given)
    if seed is None:
        seed = secrets.randbits(31)
    builder = PromptBuilder(model, instruct=instruct, guided=cfg_scale != 1, speaker=speaker)
    pieces = split_text(text, model.config.piece_letters)
    builder.check(pieces)
    if voice is not None:
        builder.set_voice(voice)
    loop = FrameLoop(
        model, KeySequence(seed), sampling, float(cfg_scale), method or fastest(model.lm), max_frames, cancel
    )
    spent = time.perf_counter() - began
    fixed = (model, builder, loop, pieces, seed, chunk_frames, voice is None, progress, spent)
    return _stream(loop.on_host, partial(_chunks, *fixed))


class _Meter:
    """Time, reads and frames since the last chunk; stands still while the consumer has the chunk."""

    def __init__(self, loop: FrameLoop, frame_seconds: float, spent: float):
        """`spent` are seconds that the text took already."""
        self.loop, self.frame_seconds, self.total, self.first_audio = loop, frame_seconds, 0.0, None
        mx.reset_peak_memory()
        self.resume(spent)

    def resume(self, spent: float = 0.0) -> None:
        self.started = self.mark = time.perf_counter() - spent
        self.stages, self.reads = {"prefill": 0.0, "frames": 0.0, "codec": 0.0}, self.loop.reads.count

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.stages[stage] += now - self.mark
        self.mark = now

    def stats(self, frames: int) -> Stats:
        seconds = time.perf_counter() - self.started
        self.total += seconds
        if frames and self.first_audio is None:
            self.first_audio = self.total
        return Stats(
            frames=frames,
            audio_seconds=frames * self.frame_seconds,
            seconds=seconds,
            first_audio_s=self.first_audio,
            host_reads=self.loop.reads.count - self.reads,
            stages=self.stages,
            peak_memory_gb=mx.get_peak_memory() / 1e9,
        )


def _stream(on_host: bool, chunks: Callable[[Callable[..., Future]], Iterator[Chunk]]) -> Iterator[Chunk]:
    """`chunks` of how to start a decoding: on the host beside the frame loop, elsewhere between two frames."""
    with beside() if on_host else nullcontext(_at_once) as start:
        yield from chunks(start)


def _chunks(
    model: SpeechModel,
    builder: PromptBuilder,
    loop: FrameLoop,
    pieces: list[str],
    seed: int,
    chunk_frames: int,
    make_anchor: bool,
    progress: Callable[[int, int], None] | None,
    spent: float,
    start: Callable[..., Future],
) -> Iterator[Chunk]:
    codec, K = model.codec, model.config.num_codebooks
    expected = max(1, round(sum(map(spoken_length, pieces)) / LETTERS_PER_SECOND * codec.frame_rate))
    meter = _Meter(loop, codec.frame_size / codec.sample_rate, spent)
    reasons: list[str] = []
    done = 0

    def decode(codes: np.ndarray, state: Any) -> np.ndarray:
        return np.array(codec.decode_step(mx.array(codes), state)) if len(codes) else np.zeros(0, np.float32)

    for segment, piece in enumerate(pieces):
        loop.prefill(builder.build(piece))
        meter.lap("prefill")
        state = start(codec.make_state).result()
        spoken: list[list[int]] = []
        pending: list[list[int]] = []
        decoding: list[tuple[np.ndarray, Future]] = []  # one at most, so that nothing goes on while a consumer pauses

        def send(pending: list = pending, state: Any = state, decoding: list = decoding) -> None:
            codes = np.array(pending, dtype=np.int32).reshape(-1, K)
            decoding.append((codes, start(decode, codes, state)))
            pending.clear()

        def chunk(final: bool = False, segment: int = segment, decoding: list = decoding) -> Chunk:
            codes, samples = decoding.pop()
            samples = samples.result()
            meter.lap("codec")
            reason = ("max_frames" if "max_frames" in reasons else reasons[-1]) if final else None
            return Chunk(samples, codes, final, reason, seed, segment, meter.stats(len(codes)))

        for codes in loop.frames():
            spoken.append(codes)
            pending.append(codes)
            done += 1
            meter.lap("frames")
            if progress is not None:
                progress(done, max(expected, done))
            full = len(pending) == (chunk_frames if done > 4 else min(2, chunk_frames))
            if decoding and (full or decoding[0][1].done()):
                yield chunk()
                meter.resume()
            if full:
                send()
                if done <= 2 or decoding[0][1].done():  # sound starts as early as it can
                    yield chunk()
                    meter.resume()
        meter.lap("frames")
        reasons.append(loop.finish_reason)
        last = segment == len(pieces) - 1 or loop.finish_reason == "cancelled"
        if decoding:
            yield chunk()
            meter.resume()
        if pending or last:
            send()
            yield chunk(final=last)
            meter.resume()
        mx.clear_cache()
        if last:
            return
        # A first piece that ran on past half of the positions would leave the next ones no room.
        if make_anchor and segment == 0 and 0 < len(spoken) <= model.config.max_positions // 2:
            builder.set_voice(Voice(codes=mx.array(spoken, dtype=mx.int32), transcript=piece.strip()))


def _at_once(function: Callable[..., Any], *arguments: Any) -> Future:
    """A finished call, as `Beside` starts one."""
    future: Future = Future()
    future.set_result(function(*arguments))
    return future
