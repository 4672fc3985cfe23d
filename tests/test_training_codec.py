"""Training of Waft's codec: a run in seconds on a CPU, what it writes, and that MLX runs the same codec."""

import argparse
import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from breeze_lab.codec import load_codec
from breeze_lab.codec.base import StreamState
from breeze_lab.codec.stft import StftCodec
from breeze_lab.codec.stft.config import parse_config
from breeze_lab.codec.stft.source import Pulses

torch = pytest.importorskip("torch", reason="PyTorch (the extra `train`) is not installed")

from breeze_lab.training import codec_data, codec_losses, codec_model, eval_codec, export_codec, pitch, train_codec  # noqa: E402
from breeze_lab.training.codec_data import Stream, trim  # noqa: E402
from breeze_lab.training.codec_source import pulses  # noqa: E402
from breeze_lab.training.codec_trainer import ADVERSARIAL, PITCH, Trainer  # noqa: E402

WAFT = Path(__file__).parent.parent / "data" / "waft" / "audio_tokenizer"


def speechlike(seconds: float, seed: int = 0) -> np.ndarray:
    """Gliding harmonics with pauses, float32 at 24 kHz."""
    generator = np.random.default_rng(seed)
    t = np.arange(int(seconds * 24000)) / 24000
    pitch = 140 + 50 * np.sin(2 * np.pi * 0.7 * t + generator.uniform(0, 6))
    phase = 2 * np.pi * np.cumsum(pitch) / 24000
    wave = sum(np.sin(k * phase) * generator.uniform(0.2, 1) / k for k in range(1, 15))
    loud = np.clip(np.sin(2 * np.pi * 1.3 * t) + 0.5, 0, 1)
    return (0.12 * wave * loud + 0.002 * generator.standard_normal(len(t))).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def audio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audio")
    np.save(folder / "train_a.npy", (speechlike(12) * 32767).astype(np.int16))
    np.save(folder / "valid.npy", (speechlike(3, 1) * 32767).astype(np.int16))
    return folder


def arguments(audio: Path, out: Path, *more: str) -> argparse.Namespace:
    fixed = ["--micro", "--seconds", "60", "--plain-steps", "3", "--adversarial-from", "0"]
    return train_codec.parser().parse_args([str(audio), str(out), *fixed, *more])


@pytest.fixture(scope="module")
def run(audio: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    train_codec.train(arguments(audio, out, "--max-steps", "5"))
    return out


def test_a_run_writes_a_log_and_a_checkpoint(run: Path):
    lines = [json.loads(line) for line in (run / "codec_log.jsonl").read_text().splitlines()]
    assert [line.get("event") for line in lines] == ["start", "phase", "k-means", "phase", None, "end"]
    assert lines[0]["hours"] == pytest.approx(12 / 3600, abs=1e-3)
    assert all(math.isfinite(lines[4][key]) for key in ("mel", "commit", "adversarial", "grad"))
    assert lines[4]["discriminator"] > 0 and lines[-1]["valid_mel"] > 0
    codec = codec_model.read_codec(run / "codec.pt")
    assert codec.encode(torch.zeros(2, 1921)).shape == (2, 2, 16)


def test_frozen_codes_stay_while_the_decoder_moves(audio: Path, run: Path, tmp_path: Path):
    more = ["--max-steps", "2", "--init", str(run / "codec.pt"), "--freeze-codes", "--rate", "0.01"]
    train_codec.train(arguments(audio, tmp_path, *more))
    before, after = (torch.load(p / "codec.pt", weights_only=True)["codec"] for p in (run, tmp_path))
    moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"decoder", "pitch"}
    x = torch.from_numpy(speechlike(1, 5))[None]
    a, b = (codec_model.read_codec(p / "codec.pt") for p in (run, tmp_path))
    assert torch.equal(a.encode(x), b.encode(x))


def test_codes_become_final_while_the_decoder_goes_on(audio: Path, tmp_path: Path):
    more = ["--max-steps", "6", "--plain-steps", "1", "--codes-until", "1e-9", "--beam", "4"]
    train_codec.train(arguments(audio, tmp_path, *more))
    frozen, after = (torch.load(tmp_path / f"{n}.pt", weights_only=True) for n in ("frozen", "codec"))
    moved = {n.split(".")[0] for n in after["codec"] if not torch.equal(after["codec"][n], frozen["codec"][n])}
    assert moved == {"decoder", "pitch"} and after["shape"]["beam"] == 4
    events = [json.loads(line).get("event") for line in (tmp_path / "codec_log.jsonl").read_text().splitlines()]
    assert events.count("codes final") == 1


def test_an_exported_codec_can_grow_and_go_on(audio: Path, run: Path, tmp_path: Path):
    export_codec.export(codec_model.read_codec(run / "codec.pt"), tmp_path / "folder")
    more = ["--init", str(tmp_path / "folder"), "--freeze-codes", "--decoder-blocks", "3"]
    trainer = Trainer(arguments(audio, tmp_path, *more))
    before = codec_model.read_codec(tmp_path / "folder")
    assert (len(before.decoder.blocks), len(trainer.codec.decoder.blocks)) == (1, 3)
    codes = torch.randint(0, 32, (1, 9, 16))
    small, grown = before.decode(codes), trainer.codec.decode(codes)
    assert 0 < float((small - grown).norm() / small.norm()) < 0.1  # the new blocks hardly do anything yet
    train_codec.train(arguments(audio, tmp_path / "on", *more, "--max-steps", "1"))
    assert codec_model.read_codec(tmp_path / "on" / "codec.pt").shape.decoder_blocks == 3


def test_packs_leave_out_held_out_voices(tmp_path: Path):
    sf = pytest.importorskip("soundfile")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    rows = []
    for n, voice in enumerate(["a", "b", "c", "a"]):
        sf.write(corpus / f"{n}.ogg", speechlike(1 + 0.1 * n, n), 24000, format="OGG", subtype="OPUS")
        rows.append({"file": f"{n}.ogg", "voice": voice, "text": f"text {n}"})
    (corpus / "manifest.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = codec_data.choose(corpus, {"held_out_voices": ["b"], "held_out_texts": ["text 3"]}, seed=0)
    assert sorted(path.name for path, _ in files) == ["0.ogg", "2.ogg"]
    codec_data.pack(files, tmp_path / "pack")
    hours = codec_data.decode_pack(tmp_path / "pack", tmp_path / "train.npy", workers=1)
    assert 1.5 / 3600 < hours < 2.6 / 3600 and Stream(tmp_path, "cpu").hours == hours


def test_a_seed_gives_the_same_run(audio: Path, tmp_path: Path):
    states = []
    for name in ("a", "b"):
        train_codec.train(arguments(audio, tmp_path / name, "--max-steps", "2", "--seed", "7"))
        states.append(torch.load(tmp_path / name / "codec.pt", weights_only=True)["codec"])
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def check_alike(ours: codec_model.Codec, theirs: StftCodec, codes: np.ndarray, within: float) -> None:
    """MLX and PyTorch decode codes [F, K] alike. Pitches may differ by roundings, which phases add up over time."""
    with torch.no_grad():
        entries = ours.entries(torch.from_numpy(codes)[None].long())
        odds, voicing = ours.pitch(entries)
        state = theirs.make_state()
        with state.advance(len(codes)):
            hertz, voiced = theirs.pitch(theirs.quantizer.entries(mx.array(codes)), state)
        assert np.abs(np.array(hertz) / ours.pitch.hertz(odds)[0].numpy() - 1).max() < 1e-5
        assert np.abs(np.array(voiced) - voicing.sigmoid()[0].numpy()).max() < 1e-4
        source = pulses(torch.from_numpy(np.array(hertz))[None], ours.shape)
        expected = ours.decoder(ours.vectors(entries), source, torch.from_numpy(np.array(voiced))[None])
    made = np.array(theirs.decode(mx.array(codes)))
    assert np.abs(made - expected.clamp(-1, 1)[0].numpy()).max() < within
    short = codes[:4]  # too short to drift
    assert np.abs(made[: 4 * 1920] - ours.decode(torch.from_numpy(short)[None])[0].numpy()).max() < 1e-3


def test_mlx_runs_the_same_codec(run: Path, tmp_path: Path):
    ours = codec_model.read_codec(run / "codec.pt")
    export_codec.export(ours, tmp_path)
    theirs = load_codec(tmp_path)
    x = speechlike(3.3, 2)
    codes = ours.encode(torch.from_numpy(x)[None])[0].numpy()
    assert (np.array(theirs.encode(mx.array(x))) == codes).mean() > 0.995  # ties within rounding may fall either way
    check_alike(ours, theirs, codes, 1e-5)


def test_sharpening_raises_contrast_and_leaves_what_is_flat():
    codec = codec_model.Codec(replace(codec_model.MICRO, n_fft=960, hop=240))
    head, bins = codec.decoder.head, 481
    with torch.no_grad():
        head.weight[:bins] = 1.5  # a flat spectrum
        head.bias[:bins] = torch.cos(torch.arange(bins) * 0.5)  # and ripples much closer than the reach
    phases = head.weight[bins:].clone()
    before = head.bias[:bins].clone()
    export_codec.sharpen(codec, 0.2)
    assert torch.allclose(head.weight[:bins], torch.tensor(1.5), atol=1e-5) and torch.equal(head.weight[bins:], phases)
    middle = slice(60, 420)
    assert torch.allclose(head.bias[middle], 1.2 * before[middle], atol=0.02)
    export_codec.sharpen(codec, 0.0)
    assert torch.allclose(head.bias[middle], 1.2 * before[middle], atol=0.02)


def test_mlx_runs_the_shipped_codec_as_pytorch_does():
    config = json.loads((WAFT / "config.json").read_text())
    assert config.pop("model_type") == "breeze_lab_stft_codec"
    ours = codec_model.Codec(codec_model.CodecShape(**config))
    tensors = {
        k: torch.from_numpy(np.array(v.astype(mx.float32))) for k, v in mx.load(str(WAFT / "model.safetensors")).items()
    }
    missing, unexpected = ours.load_state_dict(tensors, strict=False)
    assert not unexpected and {name.split(".")[-1] for name in missing} == {"usage"}
    theirs = load_codec(WAFT)
    x = speechlike(2.2, 3)
    codes = ours.encode(torch.from_numpy(x)[None])[0].numpy()
    assert (np.array(theirs.encode(mx.array(x))) == codes).all()
    check_alike(ours, theirs, codes, 1e-5)


def test_the_shipped_codec_hears_pitch():
    # Pulses through a vowel's resonances, gliding from 120 to 220 Hz: the codes hold the pitch within a quarter tone.
    codec = codec_model.read_codec(WAFT)
    glide = 120 * (220 / 120) ** (np.arange(48000) / 48000)
    turns = np.cumsum(glide) / 24000
    wave = np.zeros(48000)
    for k in range(1, 40):
        f = k * glide
        loud = sum(1 / (1 + ((f - center) / width) ** 2) for center, width in ((600, 120), (1100, 150), (2500, 250)))
        wave += loud * np.cos(2 * np.pi * k * turns)
    x = torch.from_numpy((0.3 * wave / np.abs(wave).max()).astype(np.float32))
    odds, voicing = codec.pitch(codec.entries(codec.encode(x[None])))
    hertz = codec.pitch.hertz(odds)[0].detach().numpy()[24:-24]
    truth = glide[np.arange(24, 176) * 240 + 480]  # in the middle of each window
    semitones = 12 * np.abs(np.log2(hertz / truth))
    assert np.median(semitones) < 0.5 and (voicing[0, 24:-24] > 0).float().mean() > 0.9


def test_the_pitch_is_learned_first_and_alone(audio: Path, run: Path, tmp_path: Path):
    more = ["--init", str(run / "codec.pt"), "--freeze-codes", "--pitch-steps", "3", "--max-steps", "3"]
    train_codec.train(arguments(audio, tmp_path, *more))
    lines = [json.loads(line) for line in (tmp_path / "codec_log.jsonl").read_text().splitlines()]
    assert [line["mode"] for line in lines if line.get("event") == "phase"] == [PITCH]
    before, after = (torch.load(p / "codec.pt", weights_only=True)["codec"] for p in (run, tmp_path))
    moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"pitch"}


def test_the_pitch_learns_what_the_entries_hold(audio: Path, tmp_path: Path):
    trainer = Trainer(arguments(audio, tmp_path))
    trainer.rates["pitch"].fill_(3e-3)
    entries = torch.randn(4, 6, 32)
    hertz = (200 + 50 * entries[..., 0]).repeat_interleave(8, 1)
    hertz[:, -8:] = 0  # unvoiced at the end
    losses = [[float(loss.detach()) for loss in trainer.learn_pitch(entries, hertz)] for _ in range(150)]
    assert losses[-1][0] < 0.5 * losses[0][0] and losses[-1][1] < 0.5 * losses[0][1]
    odds, voicing = trainer.codec.pitch(entries)
    made = trainer.codec.pitch.hertz(odds)
    assert (12 * (made / hertz).log2().abs()[:, :-8]).median() < 0.5
    assert (voicing[:, -8:] < 0).float().mean() > 0.8


def test_tracks_of_pitch():
    t = np.arange(72000) / 24000
    hertz = 150 + 60 * np.sin(2 * np.pi * 0.6 * t)
    wave = sum(np.cos(2 * np.pi * k * np.cumsum(hertz) / 24000) / k for k in range(1, 20)) * 0.1
    noise = np.random.default_rng(0).standard_normal(72000) * 0.02
    wave[24000:36000] = noise[24000:36000]
    wave[36000:48000] = 0
    made = pitch.track(torch.from_numpy(wave.astype(np.float32)), 24000, 240).numpy()
    assert len(made) == 300
    voiced = np.r_[5:95, 205:295]
    assert (12 * np.abs(np.log2(made[voiced] / hertz[::240][voiced]))).max() < 0.1
    assert (made[155:195] == 0).all() and (made[105:145] == 0).mean() > 0.9


def test_crops_bring_their_pitch(tmp_path: Path):
    t = np.arange(240000) / 24000
    np.save(tmp_path / "train.npy", (sum(np.cos(2 * np.pi * 160 * k * t) for k in (1, 2, 3)) * 5000).astype(np.int16))
    torch.manual_seed(3)
    crops, hertz = Stream(tmp_path, "cpu").crops(8, 19200, middle=480)
    assert hertz.shape == (8, 80) and (hertz[:, 1:] - hertz[:, :1]).abs().max() < 1
    heard = torch.stack([pitch.track(crop, 24000, 240)[10:70].median() for crop in crops])
    assert (hertz[:, 0] / heard - 1).abs().max() < 0.01 and hertz[:, 0].max() / hertz[:, 0].min() > 1.1


def test_pulses_are_those_of_mlx():
    shape = codec_model.CodecShape()
    hertz = torch.cat([torch.full((40,), 201.7), torch.linspace(90, 400, 60), torch.tensor([70.0, 350.0])])
    state = StreamState()
    with state.advance(1):
        real, imaginary = Pulses(parse_config(asdict(shape), "shape"))(mx.array(hertz.numpy()), state)
    made = pulses(hertz[None], shape)[0]
    assert np.abs(np.array(real) + 1j * np.array(imaginary) - made.numpy()).max() < 1e-5


def test_loudness_hears_what_was_added_more_than_what_is_missing():
    loss = codec_losses.LoudnessLoss(24000)
    x = torch.from_numpy(speechlike(1.5))[None]
    noise = 0.01 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    assert float(loss(x, x)) < 1e-3
    assert float(loss(x + noise, x)) > 2 * float(loss(x, x + noise)) > 0
    assert float(loss(0.3 * (x + noise), 0.3 * x)) == pytest.approx(float(loss(x + noise, x)), rel=1e-3)


def test_padding_a_batch_leaves_codes_alone(run: Path):
    codec = codec_model.read_codec(run / "codec.pt")
    x = torch.from_numpy(speechlike(1.0, 4))
    batch = torch.zeros(2, 48000)
    batch[0, : len(x)] = x
    assert torch.equal(codec.encode(batch)[0, :13], codec.encode(x[None])[0])


def test_overlap_add_undoes_the_windows():
    decoder = codec_model.Decoder(codec_model.MICRO)
    shape = codec_model.MICRO
    x = torch.from_numpy(speechlike(0.8))[None]
    windows = torch.nn.functional.pad(x, (0, shape.lookahead)).unfold(-1, shape.n_fft, shape.hop) * decoder.hann
    y = decoder.overlap_add(windows * (decoder.hann / 1.5))
    rise = shape.lookahead
    assert (y - x)[:, rise:].abs().max() < 1e-5  # once all overlapping windows are there
    assert y.shape == x.shape


def test_training_reaches_for_what_the_first_windows_can_give(audio: Path, tmp_path: Path):
    trainer = Trainer(arguments(audio, tmp_path))
    shape = trainer.shape
    ones = torch.ones(1, trainer.frames * shape.frame_size)
    hann = trainer.codec.decoder.hann
    windows = torch.nn.functional.pad(ones, (0, shape.lookahead)).unfold(-1, shape.n_fft, shape.hop) * hann
    assert torch.allclose(trainer.codec.decoder.overlap_add(windows * (hann / 1.5))[0], trainer.envelope, atol=1e-5)


def test_discriminators_push_as_hard_as_asked(audio: Path, tmp_path: Path):
    # Silence makes the spectral gradient in y huge; sized at the output layer, the pushes stay in proportion.
    trainer = Trainer(arguments(audio, tmp_path))
    trainer.ramp.fill_(1.0)
    trainer.fill(ADVERSARIAL)
    x, _ = trainer.buffers[ADVERSARIAL]
    x[:, 4000:9000] = 0
    y, *_ = trainer.reconstruct(x, True)
    leaf = y.detach().requires_grad_()
    mel, magnitude = trainer.spectral(leaf, x)
    (own,) = torch.autograd.grad(15 * mel + 2 * magnitude, leaf)
    pushes = tuple(1000 * push for push in trainer.criticize(x, leaf)[-1])  # untrained critics hardly push
    trainer.args.adversarial_weight, trainer.args.feature_weight = 0.0, 1.5
    total, _ = trainer.balanced(y, own, pushes)
    head = trainer.codec.decoder.head.weight
    size = [torch.autograd.grad(y, head, g, retain_graph=True)[0].norm() for g in (own, total - own)]
    assert float(size[1] / size[0]) == pytest.approx(1.5, rel=0.02)


def test_codebooks_fill_and_come_back_to_life():
    torch.manual_seed(0)
    quantizer = codec_model.Quantizer(codec_model.MICRO, 2)
    rows = torch.randn(600, 16)
    quantizer.kmeans(rows, batch_rows=600)
    error = [float((rows - quantizer.codebooks[0][quantizer.nearest(rows, quantizer.codebooks[0])]).square().mean())]
    _, codes, _ = quantizer(rows.view(1, 600, 16))
    assert (codes[..., 0].unique().numel(), codes[..., 1].unique().numel()) == (32, 32)
    assert error[0] < float(rows.square().mean()) * 0.7
    quantizer.codebooks[0][5:] = 100.0  # out of reach of all rows
    for _ in range(400):
        quantizer(rows.view(1, 600, 16), None, learn=True)
    assert quantizer(rows.view(1, 600, 16))[1][..., 0].unique().numel() == 32


def test_fewer_codebooks_are_the_first_ones():
    quantizer = codec_model.Quantizer(codec_model.MICRO, 3)
    z = torch.randn(2, 4, 16)
    out, codes, _ = quantizer(z, torch.tensor([1, 3]))
    books = quantizer.codebooks
    assert torch.allclose(out[0], books[0][codes[0, :, 0]], atol=1e-5)
    assert torch.allclose(out[1], sum(books[k][codes[1, :, k]] for k in range(3)), atol=1e-5)


def test_a_beam_comes_nearer_and_mlx_finds_the_same(tmp_path: Path):
    torch.manual_seed(2)
    shape = replace(codec_model.MICRO, beam=6)
    codec = codec_model.Codec(shape)
    z = torch.randn(1, 40, 16)

    def left(codes: torch.Tensor) -> float:
        books = codec.acoustic.codebooks
        return float((z - sum(books[k][codes[..., k]] for k in range(15))).square().sum())

    assert torch.equal(codec.acoustic.search(z, 1), codec.acoustic(z)[1])
    one, six = (codec.acoustic.search(z, beam) for beam in (1, 6))
    assert left(six) < 0.995 * left(one)
    export_codec.export(codec, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["beam"] == 6
    kept = codec_model.read_codec(tmp_path)
    x = speechlike(2.4, 6)
    codes = kept.encode(torch.from_numpy(x)[None])[0].numpy()
    assert (codes != kept.semantic(torch.zeros(1, 1, 16))[1].numpy()).any()
    assert (np.array(load_codec(tmp_path).encode(mx.array(x))) == codes).mean() > 0.99


def test_crops_keep_level_and_pitch(tmp_path: Path):
    t = np.arange(240000) / 24000
    np.save(tmp_path / "train.npy", (np.sin(2 * np.pi * 1000 * t) * 8000).astype(np.int16))
    stream = Stream(tmp_path, "cpu")
    plain = stream.crops(3, 12000, augment=False)[0]
    assert plain.abs().max() == pytest.approx(8000 / 32768, rel=1e-3)
    torch.manual_seed(1)
    crops = stream.crops(24, 12000)[0]
    peaks = torch.fft.rfft(crops * torch.hann_window(12000)).abs()
    hertz = peaks.argmax(-1) * 2.0
    assert hertz.min() >= 840 and hertz.max() <= 1190 and (hertz == 1000).sum() >= 6 and hertz.unique().numel() > 5
    leak = peaks.clone()
    for row, peak in zip(leak, peaks.argmax(-1), strict=True):
        row[peak - 4 : peak + 5] = 0
    assert (leak.amax(-1) / peaks.amax(-1)).max() < 0.01  # resampling is clean


def test_new_streams_are_taken_up(tmp_path: Path):
    np.save(tmp_path / "train_a.npy", np.zeros(24000, np.int16))
    stream = Stream(tmp_path, "cpu")
    assert not stream.refresh()
    np.save(tmp_path / "train_b.npy", np.zeros(48000, np.int16))
    assert stream.refresh() and stream.hours == pytest.approx(3 / 3600)


def test_trim_cuts_silence():
    x = np.concatenate([np.zeros(24000), speechlike(0.3), np.zeros(24000)]).astype(np.float32)
    cut = trim(x)
    assert 7200 <= len(cut) <= 7200 + 1920 + 4800 + 480
    assert len(trim(np.zeros(1000, np.float32))) == 0


def test_spectral_loss_tells_distance():
    loss = codec_losses.SpectralLoss(24000)
    x = torch.from_numpy(speechlike(0.5))[None]
    assert float(loss(x, x)[0]) == 0.0
    quiet, louder = (float(loss(x * g, x)[0]) for g in (0.5, 0.25))
    assert 0 < quiet < louder and quiet < 0.32  # log10 2 where nothing is under the floor


def test_the_table_judges_against_floors():
    item = {"pesq": 2.5, "mos": 3.0, "mos_original": 4.3, "similarity": 0.8, "similarity_original": 0.84}
    items = [
        {**item, "words": (2, 10), "words_original": (1, 10)},
        {**item, "words": (0, 10), "words_original": (0, 10)},
    ]
    means = eval_codec.summary(items)
    assert means["wer"] == 0.1 and means["wer_rise"] == pytest.approx(0.05)
    lines = eval_codec.table(means, 2).splitlines()
    assert [line.split("|")[5].strip() for line in lines[2:6]] == ["floor", "below", "below", "aim"]
