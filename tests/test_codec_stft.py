"""Waft's codec: shapes, causality, streams, and its arithmetic against loops in NumPy."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import soundfile as sf
from mlx.utils import tree_flatten, tree_map

from breeze_lab.codec import load_codec
from breeze_lab.codec.base import StreamState
from breeze_lab.codec.stft import StftCodec, StftCodecConfig
from breeze_lab.codec.stft.codec import Decoder
from breeze_lab.codec.stft.config import parse_config
from breeze_lab.codec.stft.source import Pulses
from breeze_lab.errors import BreezeLabError
from breeze_lab.weights import write_tensors

SMALL = StftCodecConfig(
    sample_rate=24000, frame_size=160, hop=20, n_fft=80, long_window=160, long_bins=30, short_window=40,
    num_codebooks=4, codebook_size=16, codebook_dim=6, encoder_width=8, encoder_blocks=2, encoder_layers=1,
    latent_width=16, num_heads=2, mlp_width=24, attention_window=4, decoder_layers=2, decoder_width=12,
    decoder_blocks=2, expansion=2, kernel_size=3, pitch_frames=3, pitch_width=10, pitch_bins=12,
)  # fmt: skip


@pytest.fixture(scope="module")
def codec() -> StftCodec:
    keys = iter(mx.random.split(mx.random.key(3), 200))
    made = StftCodec(SMALL)
    made.update(tree_map(lambda p: mx.random.normal(p.shape, key=next(keys)) * 0.3, made.parameters()))
    mx.eval(made.parameters())
    return made


@pytest.fixture(scope="module")
def codes() -> mx.array:
    return mx.random.randint(0, SMALL.codebook_size, (57, SMALL.num_codebooks), key=mx.random.key(1))


@pytest.fixture(scope="module")
def samples() -> mx.array:
    return mx.random.normal((SMALL.frame_size * 40 - 33,), key=mx.random.key(2)) * 0.2


def test_frames_and_samples(codec: StftCodec, samples: mx.array, codes: mx.array):
    made = codec.encode(samples)
    assert made.shape == (40, 4) and made.dtype == mx.int32
    assert int(made.min()) >= 0 and int(made.max()) < SMALL.codebook_size
    audio = codec.decode(codes)
    assert audio.shape == (57 * SMALL.frame_size,) and audio.dtype == mx.float32
    assert codec.decode(codes[:0]).shape == (0,)
    assert codec.frame_rate == 150


@pytest.mark.parametrize("chunk", [1, 2, 5, 25])
def test_a_stream_equals_one_shot(codec: StftCodec, codes: mx.array, chunk: int):
    state = codec.make_state()
    parts = [codec.decode_step(codes[i : i + chunk], state) for i in range(0, codes.shape[0], chunk)]
    assert mx.abs(mx.concatenate(parts) - codec.decode(codes)).max().item() < 1e-5
    assert state.frames == 57


def test_a_long_stream_keeps_its_phase(codec: StftCodec, codes: mx.array):
    # The phase sums up all pitches since the start: bit for bit the same pitches, or it drifts away.
    long = mx.concatenate([codes[::step] for step in (1, -1)] * 7)
    state, whole, pitches = codec.make_state(), codec.make_state(), []
    entries = codec.quantizer.entries(long)
    with whole.advance(long.shape[0]):
        expected, _ = codec.pitch(entries, whole)
    for first in range(0, long.shape[0], 7):
        with state.advance(7):
            pitches.append(codec.pitch(codec.quantizer.entries(long[first : first + 7]), state)[0])
    assert mx.array_equal(mx.concatenate(pitches), expected) and len(set(expected.tolist())) > 100
    state = codec.make_state()
    parts = [codec.decode_step(long[i : i + 3], state) for i in range(0, long.shape[0], 3)]
    assert mx.abs(mx.concatenate(parts) - codec.decode(long)).max().item() < 1e-5


def test_pulses_run_on_through_a_stream():
    # Overlapped, the windows of a constant pitch are one wave: all its harmonics, in cosine phase where it began.
    config = replace(SMALL, n_fft=960, hop=240, frame_size=1920, long_window=1920, short_window=480)
    pulses, decoder = Pulses(config), Decoder(config)
    state, hertz, parts = StreamState(), 187.5, []
    for hops in (3, 1, 1, 15):
        with state.advance(1):
            real, imaginary = pulses(mx.full((hops,), hertz), state)
            windows = mx.fft.irfft(real + 1j * imaginary, n=960) * decoder._window
            parts.append(decoder.overlap_add(windows, state))
    wave = np.array(mx.concatenate(parts)) * 240  # harmonics peak at 1: their amplitude is 1 / 240 of that
    phase = hertz * 240 / 24000 / 2  # the first hop adds half a hop's turn, in the middle of its window
    t = np.arange(len(wave)) / 24000
    expected = sum(np.cos(2 * np.pi * k * (phase + hertz * (t - 480 / 24000))) for k in range(1, 63))
    assert np.abs(wave - expected)[720:].max() < 2e-3 * np.abs(expected).max()


def test_streams_do_not_disturb_each_other(codec: StftCodec, codes: mx.array):
    other = codes[::-1]
    first, second = codec.make_state(), codec.make_state()
    parts = []
    for i in range(0, 57, 3):
        parts.append(codec.decode_step(codes[i : i + 3], first))
        codec.decode_step(other[i : i + 3], second)
    assert mx.abs(mx.concatenate(parts) - codec.decode(codes)).max().item() < 1e-5


def test_a_stream_stays_small(codec: StftCodec, codes: mx.array):
    state = codec.make_state()
    codec.decode_step(codes[:10], state)
    bytes_then = state.nbytes
    for _ in range(5):
        codec.decode_step(codes[:10], state)
    assert state.nbytes == bytes_then


def test_decoding_never_looks_ahead(codec: StftCodec, codes: mx.array):
    head = codec.decode(codes[:20])
    assert mx.abs(codec.decode(codes)[: head.shape[0]] - head).max().item() < 1e-6


def test_encoding_looks_ahead_by_720_of_24000_samples_in_the_shipped_shape(codec: StftCodec, samples: mx.array):
    ahead = SMALL.lookahead
    assert ahead == SMALL.n_fft - SMALL.hop
    whole = np.array(codec.encode(samples))
    seen = 30 * SMALL.frame_size + ahead
    changed = mx.concatenate([samples[:seen], samples[seen:] + 1.0])
    assert (np.array(codec.encode(changed))[:30] == whole[:30]).all()
    nearer = mx.concatenate([samples[: seen - ahead], samples[seen - ahead :] + 1.0])
    assert (np.array(codec.encode(nearer))[:30] != whole[:30]).any()


def test_silence_after_the_end_changes_nothing(codec: StftCodec, samples: mx.array):
    longer = mx.pad(samples, (0, 1000))
    assert (np.array(codec.encode(longer))[:40] == np.array(codec.encode(samples))).all()


def test_blocks_of_frames_are_seamless(codec: StftCodec, samples: mx.array):
    # 40 frames are encoded in blocks of 25: the codes equal those of one pass over all frames.
    config = SMALL
    padded = mx.pad(samples, (config.long_window - config.n_fft, 33 + config.lookahead))
    once = codec.quantizer.encode(codec.encoder(padded, 40, codec.make_state()))
    assert (np.array(once) == np.array(codec.encode(samples))).all()


# --- the same arithmetic in loops, float64 ----------------------------------------------------------------------------


class Reference:
    """The decoder and the encoder's spectra, written from their description."""

    def __init__(self, codec: StftCodec):
        self.p = {name: np.array(value, dtype=np.float64) for name, value in tree_flatten(codec.parameters())}

    def linear(self, x, name):
        y = x @ self.p[f"{name}.weight"].T
        return y + self.p[f"{name}.bias"] if f"{name}.bias" in self.p else y

    def layer_norm(self, x, name):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return x * self.p[f"{name}.weight"] + self.p[f"{name}.bias"]

    def rms_norm(self, x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * self.p[f"{name}.weight"]

    def attention(self, x, name):
        frames, width = x.shape
        dims = width // SMALL.num_heads
        qkv = self.linear(self.rms_norm(x, f"{name}.attention_norm"), f"{name}.qkv")
        out = np.zeros_like(x)
        for h in range(SMALL.num_heads):
            q, k, v = (qkv[:, part * width + h * dims : part * width + (h + 1) * dims] for part in range(3))
            q, k = self.turn(q), self.turn(k)
            for t in range(frames):
                first = max(0, t - SMALL.attention_window + 1)
                scores = k[first : t + 1] @ q[t] / math.sqrt(dims)
                weights = np.exp(scores - scores.max())
                out[t, h * dims : (h + 1) * dims] = weights / weights.sum() @ v[first : t + 1]
        x = x + self.linear(out, f"{name}.out")
        both = self.linear(self.rms_norm(x, f"{name}.mlp_norm"), f"{name}.gate_up")
        gate, up = both[:, : SMALL.mlp_width], both[:, SMALL.mlp_width :]
        return x + self.linear(gate / (1 + np.exp(-gate)) * up, f"{name}.down")

    @staticmethod
    def turn(x):
        half = x.shape[1] // 2
        out = np.empty_like(x)
        for t in range(len(x)):
            for i in range(half):
                angle = t * 10000.0 ** (-i / half)
                a, b = x[t, i], x[t, i + half]
                out[t, i] = a * math.cos(angle) - b * math.sin(angle)
                out[t, i + half] = b * math.cos(angle) + a * math.sin(angle)
        return out

    def block(self, x, name):
        taps = self.p[f"{name}.taps"]
        y = np.zeros_like(x)
        for t in range(len(x)):
            for j, tap in enumerate(taps):
                past = t - (len(taps) - 1) + j
                if past >= 0:
                    y[t] += x[past] * tap
        y = self.linear(self.layer_norm(y + self.p[f"{name}.taps_bias"], f"{name}.norm"), f"{name}.up")
        return x + self.linear(self.gelu(y), f"{name}.down") * self.p[f"{name}.scale"]

    def gelu(self, x):
        return np.vectorize(lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2))))(x)

    def pitch(self, entries):
        hertz, voiced = [], []
        for t in range(len(entries)):
            past = [entries[t - k] if t >= k else np.zeros_like(entries[0]) for k in (2, 1, 0)]
            x = np.concatenate(past)
            for name in ("input", "middle"):
                x = self.gelu(self.linear(x, f"pitch.{name}"))
            for row in self.linear(x, "pitch.output").reshape(-1, SMALL.pitch_bins + 1):
                best = row[:-1].argmax()
                near = [k for k in range(SMALL.pitch_bins) if abs(k - best) <= 4]
                weights = [math.exp(row[k] - row[best]) for k in near]
                place = sum(k * w for k, w in zip(near, weights, strict=True)) / sum(weights)
                hertz.append(55 * 2 ** (place * 3.2 / (SMALL.pitch_bins - 1)))
                voiced.append(1 / (1 + math.exp(-row[-1])))
        return np.array(hertz), np.array(voiced)

    def pulses(self, hertz):
        """Harmonic by harmonic."""
        rate, hop, size = SMALL.sample_rate, SMALL.hop, SMALL.n_fft
        t = np.arange(size) - size // 2
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
        phase, before, out = 0.0, 0.0, []
        for f in hertz:
            phase += (before + f) / 2 * hop / rate
            change = max(-0.05 * f, min(0.05 * f, f - before)) if before else 0
            turns = phase + f * t / rate + 0.5 * change / hop * t**2 / rate
            wave = sum(np.cos(2 * np.pi * k * turns) for k in range(1, int(0.49 * rate / f) + 1))
            out.append(np.fft.rfft(wave * hann) * 4 / size)
            before = f
        return np.array(out)

    def decode(self, codes):
        x, entries = 0, []
        for part, columns in (("semantic", codes[:, :1]), ("acoustic", codes[:, 1:])):
            books = self.p[f"quantizer.{part}.codebooks"]
            entries.append(np.array([sum(books[k][c] for k, c in enumerate(row)) for row in columns]))
            x = x + self.linear(entries[-1], f"quantizer.{part}.output_proj")
        hertz, voiced = self.pitch(np.concatenate(entries, axis=1))
        pulses = self.pulses(hertz)
        for i in range(SMALL.decoder_layers):
            x = self.attention(x, f"decoder.layers.{i}")
        x = self.linear(x, "decoder.unfold").reshape(-1, SMALL.decoder_width)
        size = np.sqrt(np.abs(pulses) ** 2 + 1e-4)
        seen = np.concatenate([0.5 * np.log(size) + 1, voiced[:, None]], axis=1)
        x = x + self.linear(seen, "decoder.pulses")
        for i in range(SMALL.decoder_blocks):
            x = self.block(x, f"decoder.blocks.{i}")
        x = self.layer_norm(x, "decoder.norm")
        head, voice = self.linear(x, "decoder.head"), self.linear(x, "decoder.voice")
        bins = SMALL.n_fft // 2 + 1
        out = np.zeros(len(x) * SMALL.hop + SMALL.n_fft)
        for i, row in enumerate(head):
            share = voiced[i] / (1 + np.exp(-voice[i, :bins]))
            turned = pulses[i] / size[i] * np.exp(1j * voice[i, bins:])
            spectrum = np.exp(np.minimum(row[:bins], 6)) * ((1 - share) * np.exp(1j * row[bins:]) + share * turned)
            hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(SMALL.n_fft) / SMALL.n_fft)
            out[i * SMALL.hop : i * SMALL.hop + SMALL.n_fft] += np.fft.irfft(spectrum, SMALL.n_fft) * hann / 1.5
        return out[: len(x) * SMALL.hop].clip(-1, 1)


def test_decoder_against_loops(codec: StftCodec, codes: mx.array):
    # The small random weights clip now and then; most samples do not.
    expected = Reference(codec).decode(np.array(codes[:12]))
    made = np.array(codec.decode(codes[:12]))
    assert (np.abs(expected) < 1).mean() > 0.3
    assert np.abs(made - expected).max() < 1e-4


def test_spectra_against_loops(codec: StftCodec, samples: mx.array):
    hops = 16
    before = SMALL.long_window - SMALL.n_fft
    padded = mx.pad(samples[: hops * SMALL.hop + SMALL.lookahead], (before, 0))
    made = np.array(codec.encoder.features(padded, hops))
    x = np.array(padded, dtype=np.float64)
    for i in range(hops):
        center = before + i * SMALL.hop + SMALL.n_fft // 2  # the middle of the decoder's window i
        long_start, short_start = (
            before + i * SMALL.hop + SMALL.n_fft - SMALL.long_window,
            center - SMALL.short_window // 2,
        )
        rows = []
        for start, size, bins in (
            (long_start, SMALL.long_window, range(1, SMALL.long_bins + 1)),
            (short_start, SMALL.short_window, range(SMALL.short_window // 2 + 1)),
        ):
            t = np.arange(size)
            part = x[start : start + size] * (0.5 - 0.5 * np.cos(2 * np.pi * t / size))
            rows += [abs((part * np.exp(-2j * np.pi * k * t / size)).sum()) ** 2 for k in bins]
        assert np.abs(made[i] - (0.25 * np.log(np.array(rows) + 1e-6) + 1)).max() < 1e-3


# --- files ------------------------------------------------------------------------------------------------------------


def test_written_and_read(codec: StftCodec, codes: mx.array, tmp_path: Path):
    names = {"input_proj": "input", "output_proj": "output"}
    tensors = {}
    for name, value in tree_flatten(codec.parameters()):
        parts = name.removeprefix("quantizer.").split(".")
        tensors[".".join(names.get(part, part) for part in parts)] = value
    write_tensors(tmp_path / "model.safetensors", tensors)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "breeze_lab_stft_codec", **asdict(SMALL)}))
    read = load_codec(tmp_path)
    assert isinstance(read, StftCodec) and read.sample_rate == 24000 and read.codebook_size == 16
    assert mx.array_equal(read.decode(codes), codec.decode(codes))
    del tensors["decoder.head.bias"]
    write_tensors(tmp_path / "model.safetensors", tensors)
    with pytest.raises(BreezeLabError, match=r"decoder\.head\.bias"):
        load_codec(tmp_path)


def test_numbers_that_do_not_fit_are_refused():
    data = asdict(SMALL)
    with pytest.raises(BreezeLabError, match="frame_size must be a multiple of hop"):
        parse_config({**data, "frame_size": 161}, "config.json")
    with pytest.raises(BreezeLabError, match="n_fft"):
        parse_config({**data, "n_fft": 70}, "config.json")
    with pytest.raises(BreezeLabError, match="hopp"):
        parse_config({**data, "hopp": 1}, "config.json")


def test_wrong_codes_are_refused(codec: StftCodec):
    with pytest.raises(BreezeLabError, match="shape"):
        codec.decode(mx.zeros((5, 3), dtype=mx.int32))
    with pytest.raises(BreezeLabError, match=r"0 \.\. 15"):
        codec.decode(mx.full((5, 4), 16, dtype=mx.int32))
    with pytest.raises(BreezeLabError, match="one channel"):
        codec.encode(mx.zeros((2, 100)))


# --- the codec in data/waft -------------------------------------------------------------------------------------------

DATA = Path(__file__).parent.parent / "data"


def bands(x: np.ndarray) -> np.ndarray:
    """Log energies of 20 bands below 8 kHz, each 20 ms."""
    windows = np.lib.stride_tricks.sliding_window_view(x, 960)[::480] * np.hanning(960)
    power = np.abs(np.fft.rfft(windows)[:, :320]) ** 2
    return np.log(power.reshape(len(windows), 20, 16).sum(-1) + 1e-4)


@pytest.mark.parametrize("clip", ["drawn_man", "drawn_woman"])
def test_waft_speaks_what_it_heard(clip: str):
    codec = load_codec(DATA / "waft" / "audio_tokenizer")
    x, rate = sf.read(DATA / "voices" / f"{clip}.flac", dtype="float32")
    assert rate == codec.sample_rate
    x = x[: 3 * rate]
    codes = codec.encode(mx.array(x))
    assert codes.shape == (38, 16) and codec.frame_size == 1920 and codec.config.lookahead == 720
    y = np.array(codec.decode(codes))[: len(x)]
    a, b = bands(x), bands(y)
    assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.9
    assert np.abs(a - b).mean() < 1.0  # 4.3 dB
    shifted = np.corrcoef(a[10:].ravel(), b[:-10].ravel())[0, 1]
    assert shifted < 0.8  # the measure tells other speech apart
