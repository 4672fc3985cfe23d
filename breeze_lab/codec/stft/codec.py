"""Waft's codec: causal, 12.5 frames a second at 24 kHz, nearly all of its work in matrix products.

Shapes: N samples, S hops (`hops_per_frame` a frame), F frames, K codebooks, C channels.
"""

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn

from ...layers import Linear
from ...weights import assign, read_json, read_tensors
from ..base import Codec, StreamState
from ..rvq import SplitRVQ
from .blocks import Block, Layer, sliding
from .config import StftCodecConfig, parse_config
from .source import Pitch, Pulses, hann

FLOOR = 0.01  # what counts as nothing beside a harmonic's peak
BLOCK = 25  # frames worked on at once: enough for full-size products, and memory stays bounded

# Names in the file (those of the training code) and here.
RENAMED = {
    f"{part}.{old}": f"quantizer.{part}.{new}"
    for part in ("semantic", "acoustic")
    for old, new in (
        ("codebooks", "codebooks"),
        ("input.weight", "input_proj.weight"),
        ("output.weight", "output_proj.weight"),
    )
}


class Encoder(nn.Module):
    """Samples -> latents [F, C], which the quantizer turns into codes."""

    def __init__(self, config: StftCodecConfig):
        super().__init__()
        self.config = config
        width = config.encoder_width
        self.input = Linear(config.long_bins + config.short_window // 2 + 1, width)
        self.blocks = [Block(width, config.expansion, config.kernel_size) for _ in range(config.encoder_blocks)]
        self.fold = Linear(width * config.hops_per_frame, config.latent_width)
        self.layers = [Layer(config) for _ in range(config.encoder_layers)]
        self.norm = nn.RMSNorm(config.latent_width, eps=1e-6)

    def features(self, samples: mx.array, hops: int) -> mx.array:
        """Log spectra [S, bins] of samples that have the first window's past in front and the look-ahead behind."""
        config = self.config
        windows = sliding(samples, config.long_window, hops, config.hop)
        middle = config.long_window - config.n_fft // 2 - config.short_window // 2
        short = windows[:, middle : middle + config.short_window] * hann(config.short_window)
        long = mx.fft.rfft(windows * hann(config.long_window))[:, 1 : config.long_bins + 1]
        both = mx.concatenate([long, mx.fft.rfft(short)], axis=-1)
        return mx.log(mx.real(both).square() + mx.imag(both).square() + 1e-6) * 0.25 + 1.0

    def __call__(self, samples: mx.array, frames: int, state: StreamState) -> mx.array:
        with state.advance(frames):
            x = self.input(self.features(samples, frames * self.config.hops_per_frame))
            for block in self.blocks:
                x = block(x, state)
            x = self.fold(x.reshape(frames, -1))
            for layer in self.layers:
                x = layer(x, state)
        return self.norm(x)


class Decoder(nn.Module):
    """Vectors of F frames [F, C], pulses' spectra [S, bins] and a voice's share [S] -> samples [F * frame_size].

    Each bin of a window is a magnitude at a phase; the phase is the decoder's own where there is no voice, and counted
    from the pulses' where there is: `voice` gives each bin's share of the two and the distance to the pulses' phase.
    """

    def __init__(self, config: StftCodecConfig):
        super().__init__()
        self.config = config
        width, bins = config.decoder_width, config.n_fft // 2 + 1
        self.layers = [Layer(config) for _ in range(config.decoder_layers)]
        self.unfold = Linear(config.latent_width, width * config.hops_per_frame)
        self.pulses = Linear(bins + 1, width)
        self.blocks = [Block(width, config.expansion, config.kernel_size) for _ in range(config.decoder_blocks)]
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = Linear(width, 2 * bins)
        self.voice = Linear(width, 2 * bins)
        self._window = hann(config.n_fft, 1.5)

    def __call__(
        self, x: mx.array, pulses: tuple[mx.array, mx.array], voiced: mx.array, state: StreamState
    ) -> mx.array:
        for layer in self.layers:
            x = layer(x, state)
        real, imaginary = pulses
        power = real.square() + imaginary.square() + FLOOR**2
        x = self.unfold(x).reshape(-1, self.config.decoder_width)
        x = x + self.pulses(mx.concatenate([0.25 * mx.log(power) + 1, voiced[:, None]], axis=-1))
        for block in self.blocks:
            x = block(x, state)
        x = self.norm(x)
        magnitude, phase = mx.split(self.head(x), 2, axis=-1)
        share, turn = mx.split(self.voice(x), 2, axis=-1)
        magnitude = mx.exp(mx.minimum(magnitude, 6.0))
        share = mx.sigmoid(share) * voiced[:, None]
        own, share = magnitude * (1 - share), magnitude * share * mx.rsqrt(power)
        cos, sin = share * mx.cos(turn), share * mx.sin(turn)
        real, imaginary = cos * real - sin * imaginary, cos * imaginary + sin * real
        parts = [own * mx.cos(phase) + real, own * mx.sin(phase) + imaginary]
        spectrum = mx.stack(parts, axis=-1).view(mx.complex64).squeeze(-1)
        return self.overlap_add(mx.fft.irfft(spectrum, n=self.config.n_fft) * self._window, state)

    def overlap_add(self, windows: mx.array, state: StreamState) -> mx.array:
        """Windows [S, n_fft] -> samples [S * hop]. Earlier windows reach in; what reaches out waits in the state."""
        hop, hops = self.config.hop, windows.shape[0]
        parts = self.config.n_fft // hop
        quarters = state.behind(windows, parts - 1).reshape(-1, parts, hop)
        first = parts - 1
        total = quarters[first:, 0]
        for part in range(1, parts):
            total = total + quarters[first - part : first - part + hops, part]
        return total.reshape(-1)


class StftCodec(Codec):
    """See `Codec`. Weights and arithmetic are float32, whatever the language model's dtype."""

    def __init__(self, config: StftCodecConfig):
        super().__init__()
        self.config = config
        self.sample_rate, self.frame_size = config.sample_rate, config.frame_size
        self.num_codebooks, self.codebook_size = config.num_codebooks, config.codebook_size
        self.encoder = Encoder(config)
        sizes = (config.num_codebooks, config.codebook_size, config.latent_width, config.codebook_dim)
        self.quantizer = SplitRVQ(*sizes, beam=config.beam)
        self.pitch, self.pulses = Pitch(config), Pulses(config)
        self.decoder = Decoder(config)

    @classmethod
    def load(cls, folder: Path) -> "StftCodec":
        """Read `config.json` and the safetensors of an `audio_tokenizer` folder.

        Raises:
            BreezeLabError: a file is missing, broken or does not fit the others; names what is wrong.
        """
        codec = cls(parse_config(read_json(folder / "config.json"), str(folder / "config.json")))
        tensors = {RENAMED.get(name, name): value.astype(mx.float32) for name, value in read_tensors(folder).items()}
        assign(codec, tensors, str(folder))
        codec.freeze()
        return codec

    def encode(self, samples: mx.array) -> mx.array:
        """See `Codec.encode`. The encoder sees `lookahead` samples (30 ms) past each frame, zeros past the end."""
        samples = self.check_samples(samples)
        config = self.config
        frames = -(-samples.shape[0] // self.frame_size)
        before = config.long_window - config.n_fft
        rest = frames * self.frame_size - samples.shape[0]
        samples = mx.pad(samples, (before, rest + config.lookahead))
        state, codes = self.make_state(), []
        for start in range(0, frames, BLOCK):
            count = min(BLOCK, frames - start)
            first = start * self.frame_size
            part = samples[first : first + before + count * self.frame_size + config.lookahead]
            codes.append(self.quantizer.encode(self.encoder(part, count, state)))
            mx.eval(codes[-1], state.arrays)
        return mx.concatenate(codes)

    def decode(self, codes: mx.array) -> mx.array:
        """See `Codec.decode`. Works through the frames in blocks, as a stream does, so memory stays bounded."""
        codes = self.check_codes(codes)
        self.check_range(codes)
        state, out = self.make_state(), []
        for start in range(0, codes.shape[0], BLOCK):
            out.append(self._decode(codes[start : start + BLOCK], state))
            mx.eval(out[-1], state.arrays)
        return mx.concatenate(out) if out else mx.zeros((0,))

    def decode_step(self, codes: mx.array, state: StreamState) -> mx.array:
        """See `Codec.decode_step`. Does not read the codes on the host."""
        codes = self.check_codes(codes)
        return self._decode(codes, state) if codes.shape[0] else mx.zeros((0,))

    def _decode(self, codes: mx.array, state: StreamState) -> mx.array:
        return self.speak(self.quantizer.entries(codes), state)

    def speak(self, entries: mx.array, state: StreamState) -> mx.array:
        """Sums of the codebooks' entries [F, 2 codebook_dim], the next of a stream -> samples [F * frame_size]."""
        with state.advance(entries.shape[0]):
            hertz, voiced = self.pitch(entries, state)
            pulses = self.pulses(hertz, state)
            samples = self.decoder(self.quantizer.project(entries), pulses, voiced, state)
        return mx.clip(samples, -1.0, 1.0)
