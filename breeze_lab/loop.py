"""The frame loop: backbone, codebook 0, depth, and around again.

Shapes: K codebooks, C backbone channels, V ids a codebook.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import mlx.core as mx

from .checkpoint import SpeechModel
from .errors import BreezeLabError
from .frames import METHODS, guided
from .host import HostFrames
from .keys import KeySequence
from .model import Breeze
from .prompt import Prompt
from .reads import HostReads
from .samplers import NOT_NUMBERS, CodeDraw, Sampling, draw, penalize, reserved_mask


class Cancel(Protocol):
    """Anything with `is_set()`, such as a threading.Event; looked at once a frame."""

    def is_set(self) -> bool: ...


class FrameMaker(Protocol):
    """Takes in a prompt, then makes one frame after another."""

    def start(self, last: bool) -> tuple[Any, tuple[int, int]]:
        """Send off one frame; `last` if none will follow. Returns what `read` takes, and the keys after codebook 0."""
        ...

    def read(self, frame: Any) -> list[int]:
        """Wait for a frame's K codes.

        Raises:
            BreezeLabError: a logit was NaN, if `start` has not raised it.
        """
        ...


class DeviceFrames:
    """Takes in a prompt, then makes one frame after another with MLX.

    `hidden` are the states [1, C] of each branch from which the next frame is made.
    """

    def __init__(
        self,
        lm: Breeze,
        prompts: Sequence[mx.array],
        draw: CodeDraw,
        first_mask: mx.array,
        cfg_scale: float,
        complete: Callable[..., mx.array],
        reads: HostReads,
    ):
        """
        Args:
            prompts: embeddings [1, S, C] of each branch.
            draw: draws the depth codebooks' codes.
            first_mask: float32 [V + 1], for codebook 0; see `samplers.reserved_mask`.
            complete: a rung of the ladder, see `breeze_lab.frames`.
        """
        self.lm, self.draw, self.first_mask, self.cfg_scale = lm, draw, first_mask, cfg_scale
        self.complete, self.reads = complete, reads
        self.caches = [lm.backbone_model.make_cache() for _ in prompts]
        self.hidden = self._walk(prompts)
        self.seen = mx.zeros(first_mask.shape, mx.bool_)
        mx.eval(self.hidden)

    def start(self, last: bool) -> tuple[mx.array, tuple[int, int]]:
        """Send off one frame: int32 [K + 1], its codes and whether a logit was NaN; and the keys after codebook 0."""
        sampling = self.draw.sampling
        logits = guided([self.lm.lm_head(hidden) for hidden in self.hidden], self.cfg_scale)
        self.draw.broken = mx.isnan(logits).any()
        logits = penalize(logits, self.seen, sampling.repetition_penalty)
        first = draw(logits + self.first_mask, self.draw.keys, sampling)
        state = self.draw.keys.state
        if sampling.repetition_penalty != 1.0:
            self.seen = self.seen | (mx.arange(self.seen.size) == first)
        codes = self.complete(self.lm.depth_decoder, first, self.hidden, self.draw, self.cfg_scale, self.reads)
        packed = mx.concatenate([codes, self.draw.broken[None].astype(mx.int32)])
        if not last:
            x = self.lm.embed_frames(codes[None, None])
            self.hidden = self._walk([x] * len(self.caches))
        mx.async_eval(packed, self.hidden)
        return packed, state

    def read(self, frame: mx.array) -> list[int]:
        """Wait for a frame."""
        *codes, broken = self.reads.list(frame)
        if broken:
            raise BreezeLabError(NOT_NUMBERS)
        return codes

    def _walk(self, inputs: Sequence[mx.array]) -> list[mx.array]:
        """[1, S, C] of each branch -> the states [1, C] after them."""
        walks = zip(inputs, self.caches, strict=True)
        return [self.lm.backbone_model(x, caches)[:, -1] for x, caches in walks]


class FrameLoop:
    """Makes frames from a prompt until they end.

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
        self.lm, self.keys, self.cfg_scale, self.cancel = model.lm, keys, cfg_scale, cancel
        self.method, self.ahead, self.on_host = method, method == "device", method == "host"
        self.max_frames, self.max_positions = max_frames, config.max_positions
        self.eos, self.reads, self.finish_reason = config.eos_class, HostReads(), "eos"
        self.first_mask, mask = (
            reserved_mask(config.vocab_size, config.codec_vocab_size, config.vocab_size + n) for n in (1, 0)
        )
        self.draw = CodeDraw(keys, sampling, mask)

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
        start = self.lm, prompt.branches, self.draw, self.first_mask, self.cfg_scale
        self.maker: FrameMaker = (
            HostFrames(*start) if self.on_host else DeviceFrames(*start, METHODS[self.method], self.reads)
        )

    def frames(self) -> Iterator[list[int]]:
        """Yield each frame's K codes as they are read; sets `finish_reason`."""
        queued: list[tuple] = []
        started = done = 0
        while True:
            if self.cancel is not None and self.cancel.is_set():
                self.finish_reason = "cancelled"
                return
            # The first frame goes out alone, so that sound starts as early as it can.
            wanted = 2 if self.ahead and done else 1
            while len(queued) < wanted and started < self.limit:
                queued.append(self.maker.start(last=started + 1 == self.limit))
                started += 1
            if not queued:
                self.finish_reason = "max_frames"
                return
            frame, keys_after_first = queued.pop(0)
            codes = self.maker.read(frame)
            if codes[0] == self.eos:
                self.keys.state = keys_after_first
                self.finish_reason = "eos"
                return
            done += 1
            yield codes
