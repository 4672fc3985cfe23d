"""One training step of the codec, its three phases, and its checkpoints. `train_codec` runs it against the clock."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .codec_data import Stream
from .codec_losses import Discriminators, LoudnessLoss, SpectralLoss, discriminator_loss, generator_losses, mel_filters
from .codec_model import MICRO, Codec, CodecShape, fan_in_normal, fill_codec, read_state
from .codec_teacher import Teacher

PLAIN, QUANTIZED, ADVERSARIAL, PITCH = 0, 1, 2, 3
NAMES = (
    "mel",
    "magnitude",
    "loudness",
    "wave",
    "commit",
    "phonetic",
    "latent_mel",
    "pitch",
    "voicing",
    "discriminator",
    "adversarial",
    "features",
    "grad",
    "balance",
)


class Heads(nn.Module):
    """Used in training only: phonetic features from the semantic code, a log-mel spectrum from the decoder's input."""

    def __init__(self, shape: CodecShape):
        super().__init__()
        self.bands = 80
        self.phonetic = nn.Sequential(
            fan_in_normal(nn.Linear(shape.codebook_dim, 256)), nn.GELU(), fan_in_normal(nn.Linear(256, 384))
        )
        self.mel = nn.Sequential(
            fan_in_normal(nn.Linear(shape.latent_width, 512)),
            nn.GELU(),
            fan_in_normal(nn.Linear(512, shape.hops_per_frame * self.bands)),
        )


class Trainer:
    """Everything one training step needs; `step(mode)` has no host reads, so that it can be captured."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.cuda = self.device == "cuda"
        self.shape = read_state(args.init)[0] if args.init else MICRO if args.micro else CodecShape()
        if args.decoder_blocks:
            self.shape = replace(self.shape, decoder_blocks=args.decoder_blocks)
        if args.beam:
            self.shape = replace(self.shape, beam=args.beam)
        torch.manual_seed(args.seed)
        self.codec = Codec(self.shape).to(self.device)
        self.discriminators = Discriminators(args.micro).to(self.device).to(memory_format=torch.channels_last)
        self.heads = Heads(self.shape).to(self.device)
        self.teacher = Teacher(args.teacher).to(self.device) if args.teacher else None
        self.spectral = SpectralLoss(self.shape.sample_rate).to(self.device)
        self.loudness = LoudnessLoss(self.shape.sample_rate).to(self.device)
        self.mel = mel_filters(1024, self.shape.sample_rate, self.heads.bands).to(self.device)
        self.hann = torch.hann_window(1024, device=self.device)
        self.stream = Stream(args.audio, self.device, "train*.npy")
        if args.init:
            load(args.init, self.codec, self.discriminators, self.heads)
        decoder = [*self.codec.decoder.parameters()]
        coder = [p for part in self.coder for p in part.parameters()]
        self.frozen, self.learned = False, decoder + coder
        options = {"fused": True, "capturable": True} if self.cuda else {}
        options |= {"betas": (0.8, 0.99), "weight_decay": 1e-3}
        self.rates = {part: torch.tensor(0.0, device=self.device) for part in ("decoder", "coder", "critics", "pitch")}
        groups = [
            {"params": decoder, "lr": self.rates["decoder"]},
            {"params": coder, "lr": self.rates["coder"]},
        ]
        self.generator_optimizer = torch.optim.AdamW(groups, **options)
        self.pitch_optimizer = torch.optim.AdamW(self.codec.pitch.parameters(), lr=self.rates["pitch"], **options)
        self.discriminator_optimizer = torch.optim.AdamW(
            self.discriminators.parameters(), lr=self.rates["critics"], **options
        )
        if args.freeze_codes:
            self.freeze()
        for quantizer in (self.codec.semantic, self.codec.acoustic):
            quantizer.decay = args.codebook_decay
        self.ramp = torch.tensor(0.0, device=self.device)
        self.sums = torch.zeros(len(NAMES) + 1, device=self.device)
        self.buffers: dict[int, tuple[Tensor, Tensor]] = {}
        frames, batch, late = (8, 2, 2) if args.micro else (args.frames, args.batch, args.adversarial_batch)
        self.frames, self.batch = frames, {PLAIN: batch, QUANTIZED: batch, ADVERSARIAL: late, PITCH: 2 * batch}
        self.critic_frames = 5 if args.micro else args.critic_frames
        hop, rise = self.shape.hop, self.shape.n_fft - self.shape.hop
        hann = torch.hann_window(self.shape.n_fft, device=self.device).square() / 1.5
        envelope = sum(F.pad(hann[: rise - p * hop], (p * hop, 0)) for p in range(self.shape.n_fft // hop - 1))
        self.envelope = torch.ones(frames * self.shape.frame_size, device=self.device)
        self.envelope[:rise] = envelope  # what the first windows can reach before the overlaps are complete

    @property
    def coder(self) -> tuple[nn.Module, ...]:
        """All that the codes depend on, and the heads that train it."""
        return self.codec.encoder, self.codec.semantic, self.codec.acoustic, self.heads

    def freeze(self) -> None:
        """From now on the decoder alone learns, so that codes stay valid; a captured step must be captured again."""
        for part in self.coder:
            part.requires_grad_(False)
        self.frozen, self.learned = True, [*self.codec.decoder.parameters()]

    def fill(self, mode: int) -> None:
        count, length = self.batch[mode], self.frames * self.shape.frame_size
        crops = self.stream.crops(count, length, middle=self.shape.n_fft // 2)
        if mode not in self.buffers:
            self.buffers[mode] = crops
        for buffer, new in zip(self.buffers[mode], crops, strict=True):
            buffer.copy_(new)

    def seconds(self, mode: int) -> float:
        """Seconds of audio in one step."""
        return self.batch[mode] * self.frames * self.shape.frame_size / self.shape.sample_rate

    @property
    def peak_gb(self) -> float:
        return round(torch.cuda.max_memory_allocated() / 1e9, 1) if self.cuda else 0.0

    def read_sums(self) -> dict[str, float]:
        """Means of the losses since the last call."""
        *sums, count = self.sums.tolist()
        self.sums.zero_()
        return {name: round(value / max(count, 1), 4) for name, value in zip(NAMES, sums, strict=True)}

    def fit_teacher(self) -> None:
        """Shows the teacher some audio, so that its features are standardized."""
        if self.teacher is not None:
            length = self.frames * self.shape.frame_size
            self.teacher.fit([self.stream.crops(self.batch[PLAIN], length)[0] for _ in range(30 if self.cuda else 1)])

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device, torch.bfloat16, enabled=self.cuda)

    def latents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with self.autocast():
            latent = self.codec.encoder(x)
        latent = latent.float()
        return self.codec.semantic.input(latent), self.codec.acoustic.input(latent)

    def reconstruct(self, x: Tensor, quantize: bool) -> tuple[Tensor, Tensor, Tensor]:
        """-> samples, sums of entries, commitment loss."""
        codec, commit = self.codec, x.new_zeros(())
        if self.frozen:  # the codes as they will be: by the beam search
            entries = codec.entries(codec.encode(x))
        else:
            semantic, acoustic = self.latents(x)
            if quantize:
                few = torch.randint(2, self.shape.num_codebooks, (len(x),), device=x.device)
                keep = torch.where(
                    torch.rand(len(x), device=x.device) < self.args.code_dropout, few, self.shape.num_codebooks
                )
                semantic, _, first = codec.semantic(semantic, None, True)
                acoustic, _, rest = codec.acoustic(acoustic, keep - 1, True)
                commit = first + rest
            entries = torch.cat([semantic, acoustic], -1)
        with self.autocast():
            y = codec.speak(entries)
        return y.float(), entries, commit

    def learn_pitch(self, entries: Tensor, hertz: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the pitch alone, which nothing else teaches. -> its two losses."""
        with self.autocast():
            pitch, voicing = self.codec.pitch.loss(entries.detach(), hertz)
        (pitch + voicing).backward()
        self.pitch_optimizer.step()
        self.pitch_optimizer.zero_grad(set_to_none=True)
        return pitch, voicing

    def auxiliary(self, x: Tensor, entries: Tensor) -> tuple[Tensor, Tensor]:
        """-> phonetic loss of the semantic entries, mel loss of the decoder's input."""
        semantic, vectors = entries[..., : self.shape.codebook_dim], self.codec.vectors(entries)
        phonetic = x.new_zeros(())
        if self.teacher is not None:
            with self.autocast():
                target = self.teacher(x)
            phonetic = (1 - F.cosine_similarity(self.heads.phonetic(semantic), target.float(), dim=-1)).mean()
        spectrum = torch.stft(x, 1024, self.shape.hop, 1024, self.hann, return_complex=True)[..., :-1].abs()
        target = torch.log10((self.mel @ spectrum).clamp(min=1e-5)).transpose(1, 2)
        guess = self.heads.mel(vectors).reshape(target.shape) - 2
        return phonetic, (guess - target).abs().mean()

    def step(self, mode: int) -> None:
        x, hertz = self.buffers[mode]
        if mode == PITCH:
            losses = self.learn_pitch(self.codec.entries(self.codec.encode(x)), hertz)
            self.count(dict(zip(("pitch", "voicing"), losses, strict=True)))
            return
        y, entries, commit = self.reconstruct(x, mode > PLAIN)
        leaf = y.detach().requires_grad_()
        target = x * self.envelope
        mel, magnitude = self.spectral(leaf, target)
        wave = (leaf - target).abs().mean()
        loudness = self.loudness(leaf, target)
        spectral = 15 * mel + 2 * magnitude + self.args.loudness_weight * loudness + self.args.wave_weight * wave
        (gradient,) = torch.autograd.grad(spectral, leaf)
        zero = x.new_zeros(())
        judged = adversarial = features = balance = zero
        if mode == ADVERSARIAL:
            judged, adversarial, features, pushes = self.criticize(target, leaf)
            gradient, balance = self.balanced(y, gradient, pushes)
        phonetic = latent_mel = zero
        if self.frozen:
            y.backward(gradient)
        else:
            phonetic, latent_mel = self.auxiliary(x, entries)
            torch.autograd.backward([y, commit + 3 * phonetic + 5 * latent_mel], [gradient, torch.ones_like(zero)])
        norm = nn.utils.clip_grad_norm_(self.learned, 20.0)
        self.generator_optimizer.step()
        self.generator_optimizer.zero_grad(set_to_none=True)
        pitch, voicing = self.learn_pitch(entries, hertz)
        self.count(
            {
                "mel": mel,
                "magnitude": magnitude,
                "loudness": loudness,
                "wave": wave,
                "commit": commit,
                "phonetic": phonetic,
                "latent_mel": latent_mel,
                "pitch": pitch,
                "voicing": voicing,
                "discriminator": judged,
                "adversarial": adversarial,
                "features": features,
                "grad": norm,
                "balance": balance,
            }
        )

    def count(self, losses: dict[str, Tensor]) -> None:
        """Adds one step's losses to the sums; the last entry counts the steps."""
        zero = torch.zeros((), device=self.device)
        self.sums += torch.stack([losses.get(name, zero).detach().float() for name in NAMES] + [zero + 1])

    def balanced(self, y: Tensor, gradient: Tensor, pushes: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Adds the discriminators' gradients of y to the spectral one, sized by what each does at the output layer.

        Sized by their norms in y instead, they blow up: the log spectra's gradient is huge where the audio is silent,
        and those samples hardly move any weight. -> (gradient, factor of the adversarial part)
        """
        head = self.codec.decoder.head.weight
        own, *theirs = (torch.autograd.grad(y, head, g, retain_graph=True)[0].norm() for g in (gradient, *pushes))
        factors = [(own / norm.clamp(min=1e-8)).clamp(max=500.0) * self.ramp for norm in theirs]
        weights = (self.args.adversarial_weight, self.args.feature_weight)
        for push, factor, weight in zip(pushes, factors, weights, strict=True):
            gradient = gradient + push * (factor * weight)
        return gradient, factors[0]

    def criticize(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
        """One step of the discriminators, and the gradients of what they say of y. Both use one forward pass."""
        size = self.critic_frames * self.shape.frame_size
        with self.autocast():
            real, fake = self.discriminators(x[:, -size:]), self.discriminators(y[:, -size:])
        judged = discriminator_loss(real, fake)
        parameters = list(self.discriminators.parameters())
        gradients = torch.autograd.grad(judged, parameters, retain_graph=True)
        adversarial, features = generator_losses(real, fake)
        pushes = tuple(
            torch.autograd.grad(loss, y, retain_graph=loss is adversarial)[0] for loss in (adversarial, features)
        )
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.empty_like(parameter).copy_(gradient)  # in the parameter's memory layout
        nn.utils.clip_grad_norm_(parameters, 10.0)
        self.discriminator_optimizer.step()
        self.discriminator_optimizer.zero_grad(set_to_none=True)
        return judged, adversarial, features, pushes

    @torch.no_grad()
    def start_codebooks(self) -> None:
        semantic, acoustic = [], []
        for _ in range(3 if self.args.micro else 40):
            self.fill(QUANTIZED)
            a, b = self.latents(self.buffers[QUANTIZED][0])
            semantic.append(a.flatten(0, 1))
            acoustic.append(b.flatten(0, 1))
        rows = self.batch[QUANTIZED] * self.frames
        self.codec.semantic.kmeans(torch.cat(semantic), rows)
        self.codec.acoustic.kmeans(torch.cat(acoustic), rows)

    def graph(self, mode: int) -> Callable[[], object]:
        """The step of one phase: captured where there is a GPU, else the plain call."""
        if not self.cuda or self.args.eager:
            return lambda: self.step(mode)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(4):
                self.fill(mode)
                self.step(mode)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.step(mode)
        except RuntimeError as error:
            print(f"no CUDA graph for phase {mode}, going on without: {error}", flush=True)
            torch.cuda.synchronize()
            return lambda: self.step(mode)
        return graph.replay


def load(path: Path, codec: Codec, discriminators: nn.Module | None = None, heads: nn.Module | None = None) -> None:
    """Reads a checkpoint of `save`, or an exported folder, into the given modules; parts it lacks stay as they are."""
    _, parts = read_state(path)
    fill_codec(codec, parts["codec"])
    for name, module in (("discriminators", discriminators), ("heads", heads)):
        if module is not None and name in parts:
            module.load_state_dict(parts[name])


def save(path: Path, trainer: Trainer) -> None:
    """Writes codec (rounded to bf16, as it is shipped), discriminators and heads."""
    parts = {"codec": trainer.codec, "discriminators": trainer.discriminators, "heads": trainer.heads}
    state = {
        name: {k: v.detach().bfloat16().cpu() for k, v in part.state_dict().items()} for name, part in parts.items()
    }
    temporary = path.with_suffix(".tmp")
    torch.save({**state, "shape": trainer.codec.config()}, temporary)
    temporary.replace(path)


@torch.no_grad()
def validate(trainer: Trainer) -> dict[str, float]:
    """Spectral losses on fixed crops of held-out voices; how many codes of each codebook they use."""
    stream = Stream(trainer.args.audio, trainer.device, "valid*.npy")
    if not len(stream.samples):
        return {}
    codec = trainer.codec
    size = trainer.frames * trainer.shape.frame_size
    count = min(32, (len(stream.samples) - trainer.shape.n_fft) // size)
    x = stream.samples[: count * size].view(count, size).float() / 32768
    codes = codec.encode(x)
    y, x = codec.decode(codes), x * trainer.envelope
    mel, magnitude = trainer.spectral(y, x)
    used = [len(codes[..., k].unique()) for k in range(codes.shape[-1])]
    shift = codec.shape.n_fft // 2 // codec.shape.hop  # a hop's pitch is that in the middle of its window
    hertz = stream.hertz[shift:][: count * size // codec.shape.hop].view(count, -1)
    made = codec.pitch.hertz(codec.pitch(codec.entries(codes))[0])
    semitones = 12 * (made / hertz.clamp(min=1)).log2().abs()[hertz > 0]
    values = {"mel": mel, "magnitude": magnitude, "loudness": trainer.loudness(y, x), "semitones": semitones.median()}
    return {**{f"valid_{name}": round(float(value), 4) for name, value in values.items()}, "codes_used": used}
