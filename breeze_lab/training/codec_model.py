"""The Waft codec in PyTorch: what is trained. `breeze_lab.codec.stft` runs the same tensors in MLX.

Shapes: B batch, N samples, S hops (100 a second), F frames (12.5 a second), K codebooks, C channels.
Encoder: two log-magnitude spectra a hop -> causal ConvNeXt blocks -> eight hops folded into a frame -> attention.
Decoder: code vectors -> attention -> each frame unfolded into eight hops -> causal ConvNeXt blocks -> inverse STFT.
Window i of the inverse STFT covers the samples [i * hop, i * hop + n_fft): nothing is written before its own hop, so
F frames give F * frame_size samples and decoding looks at no later frame. The encoder's windows end where the
decoder's do, 720 samples (30 ms) past the frame; past the end of the audio they see zeros.
"""

import json
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .codec_source import FLOOR, Pitch, pulses


@dataclass(frozen=True)
class CodecShape:
    """Numbers of the codec; the field names are those of `audio_tokenizer/config.json`."""

    sample_rate: int = 24000
    frame_size: int = 1920
    hop: int = 240
    n_fft: int = 960
    long_window: int = 1920
    long_bins: int = 240
    short_window: int = 480
    num_codebooks: int = 16
    codebook_size: int = 512
    codebook_dim: int = 96
    encoder_width: int = 224
    encoder_blocks: int = 4
    encoder_layers: int = 1
    latent_width: int = 320
    num_heads: int = 5
    mlp_width: int = 640
    attention_window: int = 16
    decoder_layers: int = 2
    decoder_width: int = 384
    decoder_blocks: int = 4
    expansion: int = 3
    kernel_size: int = 7
    beam: int = 1
    pitch_frames: int = 5
    pitch_width: int = 512
    pitch_bins: int = 96

    @property
    def hops_per_frame(self) -> int:
        return self.frame_size // self.hop

    @property
    def lookahead(self) -> int:
        """Samples past the end of a frame which the encoder sees."""
        return self.n_fft - self.hop


MICRO = CodecShape(codebook_size=32, codebook_dim=16, encoder_width=16, encoder_blocks=1, latent_width=32, num_heads=2,
                   mlp_width=32, decoder_layers=1, decoder_width=24, decoder_blocks=1, pitch_width=32)  # fmt: skip


def fan_in_normal(layer: nn.Linear, gain: float = 1.0) -> nn.Linear:
    """Variance-preserving start: the default one shrinks the signal a little at every layer."""
    nn.init.normal_(layer.weight, std=gain * layer.in_features**-0.5)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class Block(nn.Module):
    """Causal ConvNeXt block, channels last [B, S, C]: depthwise taps, norm, two matmuls, scaled residual."""

    def __init__(self, width: int, expansion: int, kernel: int):
        super().__init__()
        self.taps = nn.Parameter(torch.randn(kernel, width) * kernel**-0.5)
        self.taps_bias = nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up = fan_in_normal(nn.Linear(width, expansion * width))
        self.down = fan_in_normal(nn.Linear(expansion * width, width))
        self.scale = nn.Parameter(torch.full((width,), 0.2))

    def forward(self, x: Tensor) -> Tensor:
        kernel, steps = len(self.taps), x.shape[1]
        padded = F.pad(x, (0, 0, kernel - 1, 0))
        y = self.taps_bias.to(x.dtype).expand_as(x)
        for k in range(kernel):  # shifted sums: cheaper than a depthwise convolution and its weight gradient
            y = y + padded[:, k : k + steps] * self.taps[k].to(x.dtype)
        return x + self.down(F.gelu(self.up(self.norm(y)))) * self.scale


class Layer(nn.Module):
    """Causal attention over the last `window` frames and a gated MLP, both pre-normed, [B, F, C]."""

    def __init__(self, shape: CodecShape):
        super().__init__()
        width = shape.latent_width
        self.heads, self.window = shape.num_heads, shape.attention_window
        self.attention_norm = nn.RMSNorm(width, eps=1e-6)
        self.qkv = fan_in_normal(nn.Linear(width, 3 * width, bias=False))
        self.out = fan_in_normal(nn.Linear(width, width, bias=False), 0.3)
        self.mlp_norm = nn.RMSNorm(width, eps=1e-6)
        self.gate_up = fan_in_normal(nn.Linear(width, 2 * shape.mlp_width, bias=False))
        self.down = fan_in_normal(nn.Linear(shape.mlp_width, width, bias=False), 0.3)

    def forward(self, x: Tensor) -> Tensor:
        batch, frames, width = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(batch, frames, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        position = torch.arange(frames, device=x.device)
        distance = position[:, None] - position[None]
        mask = (distance >= 0) & (distance < self.window)
        y = F.scaled_dot_product_attention(rotate(q, position), rotate(k, position), v, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(batch, frames, width))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def rotate(x: Tensor, position: Tensor) -> Tensor:
    """Rotary positions, split halves, base 10000. x [B, H, F, D], position [F]."""
    half = x.shape[-1] // 2
    rate = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = position[:, None].float() * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Encoder(nn.Module):
    """Samples [B, F * frame_size] -> latent [B, F, C]."""

    def __init__(self, shape: CodecShape):
        super().__init__()
        self.shape = shape
        width = shape.encoder_width
        self.input = fan_in_normal(nn.Linear(shape.long_bins + shape.short_window // 2 + 1, width))
        self.blocks = nn.ModuleList(
            [Block(width, shape.expansion, shape.kernel_size) for _ in range(shape.encoder_blocks)]
        )
        self.fold = fan_in_normal(nn.Linear(width * shape.hops_per_frame, shape.latent_width))
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.encoder_layers)])
        self.norm = nn.RMSNorm(shape.latent_width, eps=1e-6)
        self.register_buffer("long_hann", torch.hann_window(shape.long_window), persistent=False)
        self.register_buffer("short_hann", torch.hann_window(shape.short_window), persistent=False)

    def features(self, samples: Tensor) -> Tensor:
        """Log magnitudes of a long and a short window with one center, [B, S, bins]."""
        shape = self.shape
        padded = F.pad(samples, (shape.long_window - shape.n_fft, shape.lookahead))
        windows = padded.unfold(-1, shape.long_window, shape.hop)
        middle = shape.long_window - shape.n_fft // 2 - shape.short_window // 2
        long = torch.fft.rfft(windows * self.long_hann)[..., 1 : shape.long_bins + 1]
        short = torch.fft.rfft(windows[..., middle : middle + shape.short_window] * self.short_hann)
        both = torch.cat([torch.view_as_real(long), torch.view_as_real(short)], dim=-2)
        return torch.log(both.square().sum(-1) + 1e-6) * 0.25 + 1.0

    def forward(self, samples: Tensor) -> Tensor:
        with torch.autocast(samples.device.type, enabled=False):
            features = self.features(samples.float())
        x = self.input(features)
        for block in self.blocks:
            x = block(x)
        x = self.fold(x.reshape(x.shape[0], -1, self.fold.in_features))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Decoder(nn.Module):
    """Code vectors [B, F, C], pulses [B, S, bins] and their share [B, S] -> samples [B, F * frame_size].

    Each bin of a window is a magnitude at a phase; the phase is the decoder's own where there is no voice, and counted
    from the pulses' where there is: `voice` gives each bin's share of the two and the distance to the pulses' phase.
    """

    def __init__(self, shape: CodecShape):
        super().__init__()
        self.shape = shape
        width = shape.decoder_width
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.decoder_layers)])
        self.unfold = fan_in_normal(nn.Linear(shape.latent_width, width * shape.hops_per_frame))
        self.blocks = nn.ModuleList(
            [Block(width, shape.expansion, shape.kernel_size) for _ in range(shape.decoder_blocks)]
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = fan_in_normal(nn.Linear(width, 2 * (shape.n_fft // 2 + 1)))
        with torch.no_grad():
            self.head.weight[: shape.n_fft // 2 + 1] *= 0.3
            self.head.bias[: shape.n_fft // 2 + 1] = -2.0
        self.pulses = nn.Linear(shape.n_fft // 2 + 2, width)
        self.voice = nn.Linear(width, 2 * (shape.n_fft // 2 + 1))
        for layer in (self.pulses, self.voice):  # at the start the source does nothing but give the phases
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        with torch.no_grad():
            self.voice.bias[: shape.n_fft // 2 + 1] = 2.0
        self.register_buffer("hann", torch.hann_window(shape.n_fft), persistent=False)

    def forward(self, x: Tensor, pulses: Tensor, voiced: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        x = self.unfold(x).view(x.shape[0], -1, self.shape.decoder_width)
        power = pulses.real.square() + pulses.imag.square() + FLOOR**2
        x = x + self.pulses(torch.cat([0.25 * power.log() + 1, voiced[..., None]], -1))
        for block in self.blocks:
            x = block(x)
        with torch.autocast(x.device.type, enabled=False):
            x = self.norm(x.float())
            magnitude, phase = self.head(x).chunk(2, dim=-1)
            share, turn = self.voice(x).chunk(2, dim=-1)
            share = share.sigmoid() * voiced[..., None]
            one = torch.ones_like(phase)
            spectrum = torch.polar(one, phase) * (1 - share) + torch.polar(one, turn) * (pulses * power.rsqrt()) * share
            windows = torch.fft.irfft(spectrum * magnitude.clamp(max=6.0).exp(), n=self.shape.n_fft)
            return self.overlap_add(windows * (self.hann / 1.5))

    def overlap_add(self, windows: Tensor) -> Tensor:
        """Windows [B, S, n_fft] -> samples [B, S * hop]; the last n_fft - hop samples are the tail and are left out."""
        hop, hops = self.shape.hop, windows.shape[1]
        parts = self.shape.n_fft // hop
        quarters = windows.view(windows.shape[0], hops, parts, hop)
        total = quarters[:, :, 0]
        for p in range(1, parts):
            total = total + F.pad(quarters[:, : hops - p, p], (0, 0, p, 0))
        return total.reshape(windows.shape[0], hops * hop)


class Quantizer(nn.Module):
    """Residual vector quantizer with moving-average codebooks and restarts of unused codes."""

    decay = 0.99

    def __init__(self, shape: CodecShape, stages: int):
        super().__init__()
        self.input = fan_in_normal(nn.Linear(shape.latent_width, shape.codebook_dim, bias=False))
        self.output = fan_in_normal(nn.Linear(shape.codebook_dim, shape.latent_width, bias=False))
        self.register_buffer("codebooks", torch.randn(stages, shape.codebook_size, shape.codebook_dim) * 0.1)
        self.register_buffer("usage", torch.ones(stages, shape.codebook_size))

    @staticmethod
    def nearest(x: Tensor, codebook: Tensor) -> Tensor:
        """Index of the nearest code of each row, x [M, C], codebook [size, C] -> [M]."""
        return (0.5 * codebook.square().sum(-1) - x @ codebook.T).argmin(-1)

    def forward(self, z: Tensor, keep: Tensor | None = None, learn: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """z [B, F, C] -> straight-through vectors [B, F, C], codes [B, F, stages], commitment loss.

        keep [B]: how many stages each item may use. learn: moves the codebooks towards z.
        """
        batch, frames, width = z.shape
        x = z.reshape(-1, width)
        residual, total = x.detach(), torch.zeros_like(x)
        codes, loss = [], x.new_zeros(())
        for i in range(len(self.codebooks)):
            codebook = self.codebooks[i]
            index = self.nearest(residual, codebook)
            chosen = codebook[index]
            codes.append(index.view(batch, frames))
            used = 1.0 if keep is None else (keep > i).to(x.dtype).repeat_interleave(frames)[:, None]
            loss = loss + ((x - total - chosen).square() * used).mean() / len(self.codebooks)
            if learn:
                self._learn(i, residual, index)
            total = total + chosen * used
            residual = residual - chosen
        total = total.view_as(z)
        return z + (total - z).detach(), torch.stack(codes, -1), loss

    @torch.no_grad()
    def _learn(self, stage: int, rows: Tensor, index: Tensor) -> None:
        size = self.usage.shape[1]
        count = torch.zeros(size, device=rows.device).index_add_(0, index, torch.ones_like(index, dtype=torch.float32))
        sums = torch.zeros_like(self.codebooks[stage]).index_add_(0, index, rows)
        old = self.usage[stage]
        usage = old * self.decay + count * (1 - self.decay)
        codebook = (self.codebooks[stage] * (old * self.decay)[:, None] + sums * (1 - self.decay)) / usage.clamp(
            min=1e-6
        )[:, None]
        fair = rows.shape[0] / size
        dead = usage < 0.08 * fair
        random = rows[torch.randint(0, rows.shape[0], (size,), device=rows.device)]
        self.codebooks[stage].copy_(torch.where(dead[:, None], random, codebook))
        self.usage[stage].copy_(torch.where(dead, torch.full_like(usage, 0.5 * fair), usage))

    @torch.no_grad()
    def kmeans(self, rows: Tensor, batch_rows: int, rounds: int = 12) -> None:
        """Starts the codebooks, stage after stage, on rows [M, C]; `batch_rows` sets the scale of the usage counts."""
        for stage in range(len(self.codebooks)):
            size = self.usage.shape[1]
            codes = rows[torch.randperm(len(rows), device=rows.device)[:size]].clone()
            if len(codes) < size:
                codes = codes.repeat(-(-size // len(codes)), 1)[:size]
            count = torch.ones(size, device=rows.device)
            for _ in range(rounds):
                index = self.nearest(rows, codes)
                count = torch.zeros(size, device=rows.device).index_add_(
                    0, index, torch.ones(len(rows), device=rows.device)
                )
                sums = torch.zeros_like(codes).index_add_(0, index, rows)
                random = rows[torch.randint(0, len(rows), (size,), device=rows.device)]
                codes = torch.where((count > 0)[:, None], sums / count.clamp(min=1)[:, None], random)
            self.codebooks[stage].copy_(codes)
            self.usage[stage].copy_(count.clamp(min=1) * (batch_rows / len(rows)))
            rows = rows - codes[self.nearest(rows, codes)]

    def search(self, z: Tensor, beam: int) -> Tensor:
        """z [B, F, C] -> codes [B, F, stages]; so many sums are followed at a time, and the nearest is taken."""
        if beam == 1:
            return self(z)[1]
        x = z.flatten(0, 1)
        rest, codes = x[:, None], torch.zeros(len(x), 1, 0, dtype=torch.long, device=x.device)
        for book in self.codebooks:
            left = 0.5 * rest.square().sum(-1, keepdim=True) + 0.5 * book.square().sum(-1) - rest @ book.T
            best = left.flatten(1).topk(min(beam, left[0].numel()), largest=False)[1]
            parent, code = (best // len(book))[..., None], best % len(book)
            rest = rest.gather(1, parent.expand(-1, -1, rest.shape[-1])) - book[code]
            codes = torch.cat([codes.gather(1, parent.expand(-1, -1, codes.shape[-1])), code[..., None]], -1)
        nearest = rest.square().sum(-1).argmin(-1)
        return codes.gather(1, nearest[:, None, None].expand(-1, 1, codes.shape[-1])).view(*z.shape[:2], -1)

    def lookup(self, codes: Tensor) -> Tensor:
        """codes [B, F, stages] -> sums of entries [B, F, codebook_dim]."""
        return torch.stack([self.codebooks[i][codes[..., i]] for i in range(codes.shape[-1])]).sum(0)


class Codec(nn.Module):
    """Encoder, split quantizer (one semantic codebook, the rest acoustic) and decoder."""

    def __init__(self, shape: CodecShape = CodecShape()):
        super().__init__()
        self.shape = shape
        self.encoder = Encoder(shape)
        self.semantic = Quantizer(shape, 1)
        self.acoustic = Quantizer(shape, shape.num_codebooks - 1)
        self.pitch = Pitch(shape)
        self.decoder = Decoder(shape)

    def config(self) -> dict:
        return {"model_type": "breeze_lab_stft_codec", **asdict(self.shape)}

    @torch.no_grad()
    def encode(self, samples: Tensor) -> Tensor:
        """Samples [B, N] in [-1, 1] -> codes [B, F, K], F = ceil(N / frame_size); zeros pad the last frame."""
        samples = F.pad(samples, (0, -samples.shape[-1] % self.shape.frame_size))
        latent = self.encoder(samples).float()
        return torch.cat([q.search(q.input(latent), self.shape.beam) for q in (self.semantic, self.acoustic)], dim=-1)

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """Codes [B, F, K] -> samples [B, F * frame_size] in [-1, 1]."""
        return self.speak(self.entries(codes)).clamp(-1, 1)

    def entries(self, codes: Tensor) -> Tensor:
        """Codes [B, F, K] -> sums of entries of the semantic and of the acoustic codebooks [B, F, 2 codebook_dim]."""
        parts = (self.semantic, codes[..., :1]), (self.acoustic, codes[..., 1:])
        return torch.cat([q.lookup(c) for q, c in parts], dim=-1)

    def vectors(self, entries: Tensor) -> Tensor:
        """-> the decoder's input [B, F, C]."""
        semantic, acoustic = entries.chunk(2, dim=-1)
        return self.semantic.output(semantic) + self.acoustic.output(acoustic)

    def speak(self, entries: Tensor) -> Tensor:
        """-> samples [B, F * frame_size]. The pitch learns by its own loss alone."""
        with torch.no_grad(), torch.autocast(entries.device.type, enabled=False):
            odds, voicing = self.pitch(entries.float())
            source = pulses(self.pitch.hertz(odds), self.shape)
        return self.decoder(self.vectors(entries), source, voicing.sigmoid())


def read_state(path: Path) -> tuple[CodecShape, dict[str, dict[str, Tensor]]]:
    """Shape and float32 tensors of a `train_codec` checkpoint, or of an exported folder (the codec alone)."""
    if path.is_dir():
        config = json.loads((path / "config.json").read_text())
        parts = {"codec": read_safetensors(path / "model.safetensors")}
    else:
        parts = torch.load(path, map_location="cpu", weights_only=True)
        config = parts.pop("shape")
    shape = CodecShape(**{name: value for name, value in config.items() if name != "model_type"})
    return shape, {part: {name: value.float() for name, value in state.items()} for part, state in parts.items()}


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a file of bf16 or float32; the format is a header's length, a JSON header and the numbers."""
    kinds = {"BF16": torch.bfloat16, "F32": torch.float32}
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            first, last = (start + offset for offset in entry["data_offsets"])
            tensors[name] = torch.frombuffer(data[first:last], dtype=kinds[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def fill_codec(codec: Codec, state: dict[str, Tensor]) -> None:
    """Loads tensors into a codec that may have more than they have: more decoder blocks, which start close to doing
    nothing, and the source of round 3.

    An exported codec has no usage counts; its codebooks must then stay as they are.
    """
    missing, unexpected = codec.load_state_dict(state, strict=False)
    new = [
        name for name in missing if name.startswith(("decoder.blocks.", "decoder.pulses.", "decoder.voice.", "pitch."))
    ]
    if unexpected or set(missing) - set(new) - {"semantic.usage", "acoustic.usage"}:
        raise ValueError(f"The checkpoint does not fit: missing {missing}, unexpected {unexpected}.")
    with torch.no_grad():
        for name in new:
            if name.endswith(".scale"):
                codec.get_parameter(name).fill_(0.01)


def read_codec(path: str | PathLike) -> Codec:
    """A trained codec, float32, on the CPU, ready to encode and decode. path: as for `read_state`."""
    shape, parts = read_state(Path(path))
    codec = Codec(shape)
    fill_codec(codec, parts["codec"])
    return codec.eval()
