"""Disguised voices: what a disguise does to a sound, who becomes whom, and how prompts use the groups."""

from collections.abc import Sequence

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from breeze_lab.training import batches, disguise, pack, traits  # noqa: E402

RATE = 24_000
NEUTRAL = disguise.Disguise(1.0, 1.0, (0.0, 0.0), np.zeros(disguise.COLORS), 0.0)


def vowel(hertz: float, formants: tuple[float, ...] = (700.0, 1800.0), seconds: float = 1.2) -> np.ndarray:
    """Harmonics of `hertz` under bumps of 120 Hz at the formants."""
    t = np.arange(int(seconds * RATE)) / RATE
    out = np.zeros(len(t))
    for f in np.arange(hertz, 7000, hertz):
        gain = 0.01 + sum(np.exp(-(((f - center) / 120) ** 2)) for center in formants)
        out = out + gain * np.sin(2 * np.pi * f * t + f)
    return (0.05 * out).astype(np.float32)


def peak(x: np.ndarray, low: float, high: float) -> float:
    """Where the smoothed spectrum is highest between two frequencies, Hz."""
    power = np.abs(np.fft.rfft(x * np.hanning(len(x)))) ** 2
    hertz = np.fft.rfftfreq(len(x), 1 / RATE)
    width = int(200 / hertz[1])
    smooth = np.convolve(power, np.hanning(width), "same")
    smooth[(hertz < low) | (hertz > high)] = 0
    return float(hertz[smooth.argmax()])


def changed(x: np.ndarray, made: disguise.Disguise) -> np.ndarray:
    return disguise.transform(torch.from_numpy(x)[None], [made], torch.Generator().manual_seed(0))[0].numpy()


def test_no_disguise_changes_nothing():
    x = vowel(120)
    assert np.abs(changed(x, NEUTRAL) - x)[1000:-1000].max() < 1e-3 * np.abs(x).max()


def test_formants_move_and_the_pitch_stays():
    x = vowel(110)
    y = changed(x, disguise.Disguise(1.0, 1.2, (0.0, 0.0), np.zeros(disguise.COLORS), 0.0))
    assert traits.pitch(y) == pytest.approx(110, rel=0.02)
    assert peak(y, 300, 1300) == pytest.approx(1.2 * peak(x, 300, 1300), rel=0.08)
    assert peak(y, 1400, 2800) == pytest.approx(1.2 * peak(x, 1400, 2800), rel=0.08)


def test_size_moves_pitch_and_length_together():
    y = disguise.stretched(torch.from_numpy(vowel(120)), 1.15).numpy()
    assert traits.pitch(y) == pytest.approx(138, rel=0.02)
    assert len(y) == pytest.approx(1.2 * RATE / 1.15, abs=240)
    assert np.sqrt((y**2).mean()) == pytest.approx(np.sqrt((vowel(120) ** 2).mean()), rel=0.05)


def test_color_and_breath():
    x = vowel(120, (700.0, 1800.0, 4000.0))
    color = np.zeros(disguise.COLORS)
    color[0] = 8.0  # up at the bottom, down at the top
    dark = changed(x, disguise.Disguise(1.0, 1.0, (0.0, 0.0), color, 0.0))
    tilt = [s[4200:5400].mean() / s[600:1080].mean() for s in (np.abs(np.fft.rfft(y)) for y in (x, dark))]
    assert tilt[1] == pytest.approx(tilt[0] * 10 ** (-8 / 20), rel=0.25)  # 4 kHz against 700 Hz, 1.2 bins a Hz
    breathy = changed(x, disguise.Disguise(1.0, 1.0, (0.0, 0.0), np.zeros(disguise.COLORS), 0.7))
    between = np.abs(np.fft.rfft(breathy))[int(4020 * 1.2) : int(4060 * 1.2)].mean()  # 3960 and 4080 are harmonics
    assert between > 20 * np.abs(np.fft.rfft(x))[int(4020 * 1.2) : int(4060 * 1.2)].mean()


def test_draws_differ_and_warps_rise():
    rng = np.random.default_rng(0)
    drawn = [disguise.draw_disguise(rng) for _ in range(50)]
    assert len({d.size for d in drawn}) == 50
    for d in drawn:
        source, color = disguise.warp_of(d)
        assert (np.diff(source) >= 0).all() and source[-1] <= disguise.BINS - 1
        assert abs(color).max() < 40


@pytest.fixture
def maker(tmp_path) -> disguise.Maker:
    made = []
    for voice, hertz in (("gauss-f-7", 210), ("af_heart", 190), ("af_heart@0.92", 170)):
        for i in range(5):
            row = {"voice": voice, "text": "hˈʌloʊ"[: 3 + i % 3], "gender": "female", "loudness": None, "normal": True}
            made.append(pack.Variant(vowel(hertz + 3 * i), row))
    pack.write_waves(tmp_path / "drawn-0000", made)
    maker = disguise.Maker([tmp_path], 3, "cpu", heart_share=0.5)
    maker.refresh()
    maker.refresh()  # a shard is read once
    return maker


def test_a_group_is_one_new_voice(maker: disguise.Maker):
    assert {k: len(v) for k, v in maker.voices.items()} == {"gauss-f-7": 5, "af_heart": 5}
    made = [*maker.make(2), *maker.make(2)]
    names = [v.row["voice"] for v in made]
    assert len(set(names)) == 4 and all(names[3 * i] == names[3 * i + 1] == names[3 * i + 2] for i in range(4))
    assert all(batches.MARK in name for name in names)
    assert [v.row["reference"] for v in made] == [True, False, False] * 4
    for v in made:
        assert np.isfinite(v.audio).all() and np.abs(v.audio).max() <= 0.981
        assert traits.level(v.audio) == pytest.approx(traits.LEVEL, rel=0.6)


def rows_of(voices: Sequence[tuple[str, bool | None]]) -> list[dict]:
    rows = []
    for i, (voice, reference) in enumerate(voices):
        row = {"start": 10 * i, "frames": 10, "voice": voice, "gender": "female", "pitch": None, "pace": None}
        row |= {"loudness": None, "normal": True, "text": f"a{chr(98 + i % 20)}{chr(98 + i // 20)}"}
        if reference is not None:
            row |= {"gender": None, "reference": reference, "normal": False}
        rows.append(row)
    return rows


def test_disguised_voices_are_cloned_and_never_named():
    voices: list[tuple[str, bool | None]] = [("af_heart", None)] * 6
    voices += [("gauss-f-7", None)] * 6
    voices += [(f"gauss-f-7~0-{i}", n == 0) for i in range(8) for n in range(3)]
    rows = rows_of(voices)
    codes = np.arange(10 * len(rows))[:, None].repeat(16, 1).astype(np.int16)  # the first code tells the utterance
    corpus = batches.Corpus(rows, codes)
    kept = {r["start"] // 10: r for r in corpus.rows}
    maker = batches.PromptMaker(corpus, np.random.default_rng(0), heart_share=0.3, disguised_share=0.6)
    kinds = {"heart": 0, "base": 0, "disguised": 0}
    for _ in range(2000):
        prompt = maker.draw()
        said = [kept[int(c[0, 0]) // 10] for _, c, _ in prompt.segments]
        target = said[-1]
        disguised = batches.MARK in target["voice"]
        kinds["disguised" if disguised else "heart" if target["voice"] == "af_heart" else "base"] += 1
        assert not target.get("reference")
        if disguised:
            assert len(said) == 2 and said[0]["voice"] == target["voice"] and said[0] is not target
            blind = prompt.segments[0][2]
            whole = len(prompt.segments[0][1])
            assert blind == whole if said[0]["reference"] else blind in (batches.BLIND, whole)
    assert kinds["disguised"] / 2000 == pytest.approx(0.7 * 0.6, abs=0.05)
    assert kinds["heart"] / 2000 == pytest.approx(0.3, abs=0.05)


def test_without_a_codec_it_writes_shards_to_encode(maker: disguise.Maker, tmp_path):
    out = tmp_path / "out"
    disguise.main([str(tmp_path), "--out", str(out), "--device", "cpu", "--groups", "2", "--hours", "0.0001"])
    (shard,) = out.glob("*.jsonl")
    made = list(pack.prepared(shard))
    assert len(made) == 6 and [v.row["reference"] for v in made] == [True, False, False] * 2
    again = disguise.Maker([out], 0, "cpu")
    again.refresh()
    assert not again.voices  # nobody is disguised twice
