"""Text to speech: the frame loop, streamed or whole.

Shapes: F frames, K codebooks, C backbone channels, V ids a codebook.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from .beside import beside
from .checkpoint import SpeechModel
from .checks import check_call, chosen, plain
from .errors import BreezeLabError
from .frames import METHODS, fastest, guided
from .host import HostBackbone
from .model import Breeze
from .prompt import Prompt, PromptBuilder, check_request, split_text, spoken_length
from .reads import HostReads
from .samplers import CodeDraw, KeySequence, Sampling, draw, penalize, reserved_mask
from .voice import Voice

LETTERS_PER_SECOND = 15.0


class Cancel(Protocol):
    """Anything with `is_set()`, such as a threading.Event; looked at once a frame."""

    def is_set(self) -> bool: ...


@dataclass
class Stats:
    """What a chunk or a whole result took. Times are seconds of generation; a consumer's pauses do not count.

    stages: seconds the host spent on "prefill", "frames" (backbone and depth) and on waiting for the "codec".
    first_audio_s: seconds from the call until the first samples were there; for `generate`, until all were.
    host_reads: times the host waited for a value of the frame loop.
    peak_memory_gb: highest memory MLX held since the call began, 1e9 bytes.
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


class DeviceBackbone:
    """Takes in a prompt, then goes on one frame a step."""

    def __init__(self, lm: Breeze, prompts: Sequence[mx.array]):
        """`prompts` are [1, S, C] embeddings of each branch; `hidden` are the states [1, C] after them."""
        self.lm, self.caches = lm, [lm.backbone_model.make_cache() for _ in prompts]
        walks = zip(prompts, self.caches, strict=True)
        self.hidden = [lm.backbone_model(prompt, caches)[:, -1] for prompt, caches in walks]

    def __call__(self, codes: mx.array) -> list[mx.array]:
        """int [K] codes of the frame before -> each branch's next hidden state [1, C]."""
        x = self.lm.embed_frames(codes[None, None])
        return [self.lm.backbone_model(x, caches)[:, -1] for caches in self.caches]


class FrameLoop:
    """Makes frames from a prompt: backbone, codebook 0, depth, and around again.

    With the method "device" it queues frame n + 1 before it reads frame n, so the device never waits for the host.
    """

    def __init__(
        self,
        model: SpeechModel,
        keys: KeySequence,
        sampling: Sampling,
        cfg_scale: float,
        method: str,
        max_frames: int,
        cancel: Cancel | None,
    ):
        config = model.config
        self.lm, self.keys, self.sampling, self.cfg_scale = model.lm, keys, sampling, cfg_scale
        self.complete, self.ahead, self.on_host = METHODS[method], method == "device", method == "host"
        self.max_frames, self.max_positions, self.cancel = max_frames, config.max_positions, cancel
        self.eos, self.reads = config.eos_class, HostReads()
        self.first_mask = reserved_mask(config.vocab_size, config.codec_vocab_size, config.vocab_size + 1)
        self.draw = CodeDraw(
            keys, sampling, reserved_mask(config.vocab_size, config.codec_vocab_size, config.vocab_size)
        )
        self.finish_reason = "eos"

    def prefill(self, prompt: Prompt) -> None:
        """Run the prompt's branches through the backbone.

        Raises:
            BreezeLabError: a prompt that fills the model's positions.
        """
        longest = max(branch.shape[1] for branch in prompt.branches)
        self.limit = min(self.max_frames, self.max_positions - longest)
        if self.limit < 1:
            raise BreezeLabError(
                f"The prompt takes {longest} of the model's {self.max_positions} positions, which leaves no room for "
                "speech. Use a shorter reference clip or instruction."
            )
        self.backbone = (HostBackbone if self.on_host else DeviceBackbone)(self.lm, prompt.branches)
        self.hidden = self.backbone.hidden
        self.seen = mx.zeros((self.eos + 1,), mx.bool_)
        mx.eval(self.hidden)

    def frames(self) -> Iterator[list[int]]:
        """Yield each frame's K codes as they are read; sets `finish_reason`."""
        queued: list[tuple[mx.array, mx.array]] = []
        started = done = 0
        while True:
            if self.cancel is not None and self.cancel.is_set():
                self.finish_reason = "cancelled"
                return
            # The first frame goes out alone, so that sound starts as early as it can.
            wanted = 2 if self.ahead and done else 1
            while len(queued) < wanted and started < self.limit:
                queued.append(self._queue_frame(last=started + 1 == self.limit))
                started += 1
            if not queued:
                self.finish_reason = "max_frames"
                return
            packed, keys_after_first = queued.pop(0)
            *codes, broken = self.reads.list(packed)
            if broken:
                raise BreezeLabError(
                    "The model computed logits that are not numbers. Its weights are damaged, or its dtype overflows: "
                    "download the checkpoint again, or load it with dtype='float32'."
                )
            if codes[0] == self.eos:
                self.keys.state = keys_after_first
                self.finish_reason = "eos"
                return
            done += 1
            yield codes

    def _queue_frame(self, last: bool) -> tuple[mx.array, mx.array]:
        """Send off one frame: int32 [K + 1], its codes and whether a logit was NaN; and the keys after codebook 0."""
        lm, sampling = self.lm, self.sampling
        logits = guided([lm.lm_head(hidden) for hidden in self.hidden], self.cfg_scale)
        self.draw.broken = mx.isnan(logits).any()
        first = draw(penalize(logits, self.seen, sampling.repetition_penalty) + self.first_mask, self.keys, sampling)
        keys_after_first = self.keys.state
        if sampling.repetition_penalty != 1.0:
            self.seen = self.seen | (mx.arange(self.eos + 1) == first)
        codes = self.complete(lm.depth_decoder, first, self.hidden, self.draw, self.cfg_scale, self.reads)
        packed = mx.concatenate([codes, self.draw.broken[None].astype(mx.int32)])
        if not last:
            self.hidden = self.backbone(codes)
        mx.async_eval(packed, self.hidden)
        return packed, keys_after_first


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
