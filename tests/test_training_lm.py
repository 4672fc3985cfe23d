"""Training of Waft's language model: the batches, whether the text reaches the loss, whether exported weights agree."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from breeze_lab.config import parse_config  # noqa: E402
from breeze_lab.generation_config import read_sampling  # noqa: E402
from breeze_lab.model import Breeze  # noqa: E402
from breeze_lab.samplers import Sampling  # noqa: E402
from breeze_lab.training import batches, export, instructions, pack, tokens, train_lm, traits  # noqa: E402
from breeze_lab.training.lm import MICRO, Batch, WaftLM, waft_config  # noqa: E402
from breeze_lab.weights import assign, read_tensors  # noqa: E402

LETTERS = "abdefghijklmnoprstuvwz"
SIZES = batches.MICRO_SIZES


def toy_corpus(count: int = 240, seed: int = 0) -> tuple[list[dict], np.ndarray]:
    """Utterances whose codes are a function of their letters: one frame a letter, shifted by the voice."""
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 400, (len(LETTERS), 16))
    rows, codes, start = [], [], 0
    voices = ("af_heart", "af_bella", "gauss-f-1", "mix01@0.92")
    for i in range(count):
        ids = rng.integers(0, len(LETTERS), rng.integers(5, 12))
        row = {
            "start": start,
            "frames": len(ids),
            "voice": voices[i % 4],
            "gender": "female",
            "pitch": None,
            "loudness": None,
        }
        row |= {"text": "".join(LETTERS[j] for j in ids), "pace": "slow" if i % 8 == 0 else None}
        rows.append(row | {"normal": row["pace"] is None})
        codes.append(table[ids] + 11 * (i % 4))
        start += len(ids)
    return rows, np.concatenate(codes).astype(np.uint16)


@pytest.fixture(scope="module")
def corpus() -> batches.Corpus:
    rows, codes = toy_corpus()
    return batches.Corpus(rows, codes.astype(np.int16))


def micro_net(drop: float = 0.0) -> WaftLM:
    torch.manual_seed(0)
    return WaftLM(waft_config(**MICRO), row=SIZES.row, text_row=SIZES.text_row, drop=drop)


def packed(prompts: list[batches.Prompt]) -> dict[str, np.ndarray]:
    """Just these prompts; what comes after them is too long to fit."""
    too_long = batches.Prompt([([tokens.BOS] * 10_000, np.zeros((1, 16), np.int16), 0)])
    return batches.pack(iter([*prompts, *[too_long] * 99]), SIZES, np.random.default_rng(0), 0.0)


def as_batch(arrays: dict[str, np.ndarray]) -> Batch:
    return Batch(**{k: torch.from_numpy(v) for k, v in arrays.items()})


def test_clone_prompt_layout(corpus):
    """[S0]ref | ref codes | one frame of zeros | [S0]text | codes, each text with its own <bos>."""
    ref, target = corpus.rows[1], corpus.rows[5]
    maker = batches.PromptMaker(corpus, np.random.default_rng(0))
    prompt = batches.Prompt(
        [
            (batches.text_ids(ref["text"]), corpus.frames(ref), batches.BLIND),
            (batches.text_ids(target["text"]), corpus.frames(target), 0),
        ]
    )
    assert maker.clone(1).segments[0][2] == batches.BLIND
    b = packed([prompt])
    row = int(np.nonzero((b["prompt"] == 0).any(1))[0][0])
    text_of = b["text"].reshape(-1)
    source, frames, goal = b["source"][row], b["frames"][row], b["target"][row]
    at, layout = 0, []
    while b["prompt"][row, at] == 0:
        layout.append(int(text_of[source[at]]) if source[at] >= 0 else tuple(frames[at]))
        at += 1
        if at == SIZES.row:
            break
    zeros = (0,) * 16
    expected = [2, tokens.vocabulary()["[S0]"], *tokens.encode(ref["text"]), *map(tuple, corpus.frames(ref)), zeros]
    expected += [2, tokens.vocabulary()["[S0]"], *tokens.encode(target["text"]), *map(tuple, corpus.frames(target))]
    assert layout == expected
    assert len(prompt) == len(expected)
    last = len(expected) - 1
    assert goal[last] == batches.END_CLASS == 515  # the last frame predicts the end
    first = last - target["frames"]
    assert list(goal[first:last]) == list(corpus.frames(target)[:, 0])  # the last token predicts the first frame
    ends = 1 + len(ref["text"]) + ref["frames"]
    assert goal[ends] == batches.END_CLASS and (goal[ends + 1 : first] == batches.IGNORE).all()
    known = 1 + len(ref["text"]) + batches.BLIND
    assert (goal[:known] == batches.IGNORE).all()  # the reference's voice is not known before


def test_design_and_plain_prompts_are_what_the_tokenizer_makes(corpus):
    tokenizer = pytest.importorskip("tokenizers").Tokenizer.from_str(json.dumps(tokens.tokenizer_json()))
    assert batches.text_ids("kˈæt", 3) == tokenizer.encode("[S3]kˈæt").ids
    assert (
        batches.text_ids("kˈæt", 0, "A man, slowly.")
        == tokenizer.encode("[S0]<ins_bos>A man, slowly.<ins_eos>kˈæt").ids
    )


def test_prompts_in_a_row_do_not_see_each_other(corpus):
    net = micro_net().eval()
    maker = batches.PromptMaker(corpus, np.random.default_rng(1))
    one, two, other = maker.plain(4), maker.clone(9), maker.clone(13)
    a, b = packed([one, two]), packed([one, other])
    with torch.no_grad():
        x, y = (net.hidden(as_batch(p)) for p in (a, b))
    mine = torch.from_numpy(a["prompt"] == 0)
    assert (a["prompt"] == 0).any() and (a["prompt"] == b["prompt"])[a["prompt"] == 0].all()
    torch.testing.assert_close(x[mine], y[mine], rtol=1e-5, atol=1e-6)
    alone = packed([two])
    with torch.no_grad():
        z = net.hidden(as_batch(alone))
    torch.testing.assert_close(
        x[torch.from_numpy(a["prompt"] == 1)], z[torch.from_numpy(alone["prompt"] == 0)], rtol=1e-4, atol=1e-5
    )


def test_every_token_of_the_text_reaches_the_loss(corpus):
    net = micro_net()
    b = as_batch(packed([batches.PromptMaker(corpus, np.random.default_rng(1)).plain(4)]))
    sum(net.losses(b)).backward()
    moved = set(net.text_encoder.embed_tokens.weight.grad.abs().sum(1).nonzero()[:, 0].tolist())
    assert moved == set(b.text.flatten().tolist()) - {tokens.PAD}


def test_right_text_beats_wrong_text_after_a_short_run():
    """Ten sentences learned by heart: the loss with each one's text is far under that with another's."""
    rows, codes = toy_corpus(24)
    made = batches.Corpus(rows, codes.astype(np.int16))
    maker = batches.PromptMaker(made, np.random.default_rng(0))
    prompts = [maker.plain(i) for i in range(10)]
    swapped = [
        batches.Prompt([(prompts[(i + 1) % 10].segments[0][0], *p.segments[0][1:])]) for i, p in enumerate(prompts)
    ]
    right, wrong = as_batch(packed(prompts)), as_batch(packed(swapped))
    net = micro_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=6e-3)
    for _ in range(30):
        first, rest = net.losses(right)
        (first + rest).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        assert net.losses(wrong)[0] > net.losses(right)[0] + 0.5


@pytest.mark.parametrize("int8", [False, True])
def test_exported_weights_give_the_same_logits(tmp_path: Path, corpus, int8):
    net = micro_net().eval()
    if int8:  # rows of 64 for the packing's groups
        torch.manual_seed(0)
        text = dict(MICRO["text"], hidden_size=64)
        config = waft_config(text=text, backbone=dict(MICRO["backbone"], hidden_size=64), depth=MICRO["depth"])
        net = WaftLM(config, row=SIZES.row, text_row=SIZES.text_row).eval()
    else:
        config = waft_config(**MICRO)
    torch.save({"config": config, "weights": net.state_dict(), "step": 0}, tmp_path / "weights.pt")
    export.export(tmp_path / "weights.pt", tmp_path / "out", int8=int8)
    parsed = parse_config(json.loads((tmp_path / "out/config.json").read_text()))
    assert read_sampling(tmp_path / "out") == Sampling(0.5, 50, 1.0, 1.0)  # Waft's own, in its card
    tensors = read_tensors(tmp_path / "out")
    dense = {}
    for name, tensor in tensors.items():
        if name.endswith(".scales"):
            path = name.removesuffix(".scales")
            parts = [tensors[f"{path}.{kind}"] for kind in ("weight", "scales", "biases")]
            dense[f"{path}.weight"] = mx.dequantize(*parts, group_size=64, bits=8).astype(mx.float32)
        elif not name.endswith(".biases") and f"{name.removesuffix('.weight')}.scales" not in tensors:
            dense[name] = tensor.astype(mx.float32)
    lm = Breeze(parsed)
    assign(lm, dense, "test")
    state = {k: torch.from_numpy(np.array(v)) for k, v in dense.items()}
    assert any(".scales" in name for name in tensors) == int8
    if int8:  # the packing itself is close to what was packed
        for name, tensor in state.items():
            torch.testing.assert_close(tensor, net.state_dict()[name], rtol=0.02, atol=0.02 * float(tensor.abs().max()))
    for name, tensor in export.read_weights(tmp_path / "out").items():  # what a next round would start from
        torch.testing.assert_close(tensor, state[name], rtol=0.01, atol=5e-3)  # MLX unpacks in bfloat16
    net.load_state_dict(state)

    ref, target = corpus.rows[1], corpus.rows[5]
    prompt = batches.Prompt([(batches.text_ids(r["text"]), corpus.frames(r), 0) for r in (ref, target)])
    b = packed([prompt])
    mine = b["prompt"].reshape(-1) == 0
    with torch.no_grad():
        hidden = net.hidden(as_batch(b)).flatten(0, 1)[torch.from_numpy(mine)]
        first = net.lm_head(hidden).numpy()
        codes = torch.from_numpy(corpus.frames(target).astype(np.int64))
        rest = net.depth_logits(hidden[-1 - len(codes) : -1], codes).numpy()

    def audio(row):
        return lm.embed_frames(mx.array(corpus.frames(row).astype(np.int32))[None])

    end = lm.embed_frames(mx.zeros((1, 1, 16), mx.int32))
    ids = [mx.array([ids]) for ids, _, _ in prompt.segments]
    x = mx.concatenate([lm.embed_text(ids[0]), audio(ref), end, lm.embed_text(ids[1]), audio(target)], axis=1)
    states = lm.backbone_model(x)
    np.testing.assert_allclose(np.array(lm.lm_head(states)[0]), first, rtol=1e-3, atol=1e-4)
    frames = mx.array(corpus.frames(target).astype(np.int32))
    depth = lm.depth_decoder
    known = mx.concatenate([states[0, -1 - len(frames) : -1][:, None], depth.embed_codes(frames[:, :-1])], axis=1)
    out = depth.model(known)
    for k in range(15):
        np.testing.assert_allclose(np.array(depth.codebooks_head(out[:, k + 1], k)), rest[:, k], rtol=1e-3, atol=1e-4)


def test_a_run_stops_and_goes_on(tmp_path: Path, capsys):
    rows, codes = toy_corpus(320)
    (tmp_path / "codes").mkdir()
    pack.save(tmp_path / "codes/a.npz", rows, codes)
    argv = [
        "--codes",
        str(tmp_path / "codes"),
        "--out",
        str(tmp_path / "run"),
        "--micro",
        "--every",
        "2",
        "--warmup",
        "2",
        "--device",
        "cpu",
    ]
    train_lm.main([*argv, "--steps", "2"])
    train_lm.main([*argv, "--steps", "4"])
    log = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in log] == [2, 4]
    assert {"first", "rest", "right", "wrong", "ms", "seconds"} <= set(log[0])
    assert "step 2" in capsys.readouterr().out


def test_packed_codes_come_back(tmp_path: Path):
    rows, codes = toy_corpus(40)
    codes[0] = 511
    pack.save(tmp_path / "a.npz", rows[:20], codes[: rows[20]["start"]])
    pack.save(
        tmp_path / "b.npz",
        [{**r, "start": r["start"] - rows[20]["start"]} for r in rows[20:]],
        codes[rows[20]["start"] :],
    )
    got_rows, got = pack.merge([tmp_path / "a.npz", tmp_path / "b.npz"])
    assert got_rows == rows and (got == codes).all()
    assert (tmp_path / "a.npz").stat().st_size < 20 * 18 * 12 + 4000  # nine bits a code


def test_waves_are_encoded_as_the_variants_themselves(tmp_path: Path):
    made = []
    for i, factor in enumerate((1.0, 0.92)):
        audio = 0.3 * np.sin(np.arange(24_000 + 5_000 * i) * 0.05 * factor).astype(np.float32)
        row = {"voice": f"gauss-f-7@{factor}", "text": "hˈʌ.", "gender": "female", "normal": factor == 1.0}
        made.append(pack.Variant(audio, row))
    pack.write_waves(tmp_path / "drawn-0000", made)
    again = list(pack.prepared(tmp_path / "drawn-0000.jsonl"))
    assert [v.row for v in again] == [v.row for v in made]
    assert all(np.abs(a.audio - b.audio).max() < 1e-4 for a, b in zip(again, made, strict=True))


def test_an_instruction_without_a_gender_keeps_the_default_voice():
    rng = np.random.default_rng(0)
    row = {"gender": "female", "pace": "slow", "pitch": None, "loudness": None}
    named = [
        [instructions.traits_of(row | {"voice": v}, rng) for _ in range(60)] for v in ("af_heart", "af_heart@0.92")
    ]
    assert any(traits == ["slow"] for traits in named[0])
    assert all("female" in traits for traits in named[1])


def test_the_rate_falls_to_nothing():
    rates = [train_lm.rate(f, 10_000, 1.0, 100, hold=0.25) for f in (0.0, 0.25, 0.6, 1.0)]
    assert rates[:2] == [1.0, 1.0] and rates[2] == pytest.approx(0.564, abs=0.01) and rates[3] == pytest.approx(0.01)
    assert train_lm.rate(0.0, 9, 1.0, 100) == pytest.approx(0.1)


def test_weights_of_training_start_another_run(tmp_path: Path):
    state = micro_net().state_dict()
    torch.save({"weights": {k: v.half() for k, v in state.items()}, "config": {}, "step": 1}, tmp_path / "weights.pt")
    read = export.read_weights(tmp_path / "weights.pt")
    assert read.keys() == state.keys()
    assert all(v.dtype == torch.float32 and torch.equal(v, state[k].half().float()) for k, v in read.items())


def test_tokens_are_those_of_the_library():
    tokenizer = pytest.importorskip("tokenizers").Tokenizer.from_str(json.dumps(tokens.tokenizer_json()))
    text = "ðə kˈæt, (laugh) “3%” ü\n"
    assert tokenizer.encode(text).ids == [tokens.BOS, *tokens.encode(text)]
    assert tokenizer.encode("[S0]").ids == [tokens.BOS, tokens.vocabulary()["[S0]"]]


def test_traits_are_measured():
    t = np.arange(24_000) / 24_000
    voiced = sum(np.sin(2 * np.pi * 150 * k * t) / k for k in range(1, 8)) * 0.1
    assert traits.pitch(voiced.astype(np.float32)) == pytest.approx(150, rel=0.02)
    assert traits.sounds("kˈæt, ðə!") == 5
    assert traits.classes("male", 80.0, 16.0, "quiet") == {"pitch": "low", "pace": "fast", "loudness": "quiet"}
    rng = np.random.default_rng(0)
    said = {instructions.describe(["male", "slow"], rng) for _ in range(30)}
    assert len(said) > 20 and all(any(w in s.lower() for w in ("man", "male", "guy")) for s in said)
