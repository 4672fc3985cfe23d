"""Speak many prompts at once with weights in training: a batch on the GPU, for judging settings in seconds.

    python -m breeze_lab.training.sample --weights runs/lm/weights.pt --items items.npz --out samples --settings \\
        0.8:50:0.8:50 0.7:30:0.7:30

`items.npz` comes from `evaluate items`. A setting is temperature:top_k of codebook 0, then of the others. One file a
setting: the codes of each item and whether it ended by itself.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from . import batches, pack
from .lm import WaftLM


def text_states(net: WaftLM, ids: list[int], device: str) -> Tensor:
    """One text segment -> [L, C]."""
    at = torch.tensor([ids], device=device)
    return net.text_encoder_proj(net.text_encoder(at, torch.zeros_like(at)))[0]


def embed(net: WaftLM, item: dict, instructed: bool, device: str) -> Tensor:
    """The prompt of an item -> [S, C]."""
    parts = []
    if item.get("codes") is not None:
        ref = torch.as_tensor(np.asarray(item["codes"]), dtype=torch.long, device=device)
        end = torch.zeros(1, net.codebooks, dtype=torch.long, device=device)
        parts = [
            text_states(net, batches.text_ids(item["ref_text"]), device),
            net.embed_frames(ref),
            net.embed_frames(end),
        ]
    told = item.get("instruct") if instructed else None
    parts.append(text_states(net, batches.text_ids(item["phonemes"], item.get("speaker", 0), told), device))
    return torch.cat(parts)


def draw(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    """[B, V] -> [B]."""
    values, index = logits.float().topk(min(top_k, logits.shape[-1]), -1)
    if temperature <= 0:
        return index[:, 0]
    return index.gather(1, torch.multinomial(torch.softmax(values / temperature, -1), 1))[:, 0]


@torch.inference_mode()
def speak(net: WaftLM, items: list[dict], setting: tuple[float, int, float, int], cfg: float, limit: int, device: str):
    """-> (list of codes int16 [F, K], list of bool: ended by itself). With cfg != 1 the second half of the batch is the
    negative."""
    first_t, first_k, rest_t, rest_k = setting
    prompts = [embed(net, item, True, device) for item in items]
    if cfg != 1:
        prompts += [embed(net, item, False, device) for item in items]
    B, N, L = len(prompts), len(items), max(map(len, prompts))
    x = torch.zeros(B, L, prompts[0].shape[1], device=device)
    here = torch.zeros(B, L, dtype=torch.bool, device=device)
    at = torch.zeros(B, L, dtype=torch.long, device=device)
    for i, p in enumerate(prompts):  # padded at the left, so that all go on at the same place
        x[i, L - len(p) :], here[i, L - len(p) :] = p, True
        at[i, L - len(p) :] = torch.arange(len(p), device=device)
    tri = torch.ones(L, L, dtype=torch.bool, device=device).tril()
    mask = (tri & here[:, None]) | torch.eye(L, dtype=torch.bool, device=device)
    caches: list[list[Tensor]] = [[] for _ in net.backbone_model.layers]

    def backbone(x: Tensor, mask: Tensor, at: Tensor) -> Tensor:
        for layer, cache in zip(net.backbone_model.layers, caches, strict=True):
            x = layer(x, mask, at, cache)
        return net.backbone_model.norm(x)[:, -1]

    def mixed(logits: Tensor) -> Tensor:
        return logits if cfg == 1 else logits[N:] + cfg * (logits[:N] - logits[N:])

    def both(codes: Tensor) -> Tensor:
        return codes if cfg == 1 else torch.cat([codes, codes])

    hidden, place, model = backbone(x, mask[:, None], at), at[:, -1:], net.depth_decoder.model
    heads, done, out = net.depth_decoder.codebooks_head.weight, torch.zeros(N, dtype=torch.bool, device=device), []
    length = torch.full((N,), limit, device=device)
    for frame in range(limit):
        logits = mixed(net.lm_head(hidden).float())
        logits[:, batches.CODES : batches.END_CLASS] = -torch.inf
        code = draw(logits, first_t, first_k)
        length = torch.where(~done & (code == batches.END_CLASS), frame, length)
        done |= code == batches.END_CLASS
        if bool(done.all()):
            break
        codes = [code.clamp(max=batches.CODES - 1)]
        depth: list[list[Tensor]] = [[] for _ in model.layers]
        x = model.inputs_embeds_projector(hidden[:, None])
        for k in range(net.codebooks):
            if k:
                x = model.inputs_embeds_projector(model.embed_tokens(both(codes[-1]) + (k - 1) * net.vocab)[:, None])
            spot = torch.full((B, 1), k, dtype=torch.long, device=device)
            seen = torch.ones(B, 1, 1, k + 1, dtype=torch.bool, device=device)
            for layer, cache in zip(model.layers, depth, strict=True):
                x = layer(x, seen, spot, cache)
            if k:
                codes.append(draw(mixed((model.norm(x)[:, 0] @ heads[k - 1])[:, : batches.CODES]), rest_t, rest_k))
        out.append(torch.stack(codes, 1))
        here = torch.cat([here, torch.ones(B, 1, dtype=torch.bool, device=device)], 1)
        place = place + 1
        hidden = backbone(net.embed_frames(both(out[-1]))[:, None], here[:, None, None], place)
    made = torch.stack(out, 1).to(torch.int16).cpu().numpy() if out else np.zeros((N, 0, net.codebooks), np.int16)
    return [c[: int(n)] for c, n in zip(made, length, strict=True)], done.tolist()


def read_items(path: Path) -> list[dict]:
    """The items of `evaluate items`: phonemes, kind, and for clones the reference's codes."""
    rows, codes = pack.read(path)
    return [{**r, "codes": codes[r["start"] : r["start"] + r["frames"]] if r["frames"] else None} for r in rows]


def write_samples(path: Path, codes: list[np.ndarray], ended: list[bool], items: list[dict]) -> None:
    """Codes and what they say, in the same file format as packed codes."""
    rows, start = [], 0
    for c, e, item in zip(codes, ended, items, strict=True):
        rows.append({**{k: v for k, v in item.items() if k != "codes"}, "start": start, "frames": len(c), "ended": e})
        start += len(c)
    pack.save(path, rows, np.concatenate(codes).astype(np.uint16))


def load(path: Path, device: str) -> WaftLM:
    """The network of a weights.pt."""
    data = torch.load(path, map_location="cpu", weights_only=True)
    net = WaftLM(data["config"], row=2048, text_row=2048)
    net.load_state_dict({k: v.float() for k, v in data["weights"].items()})
    return net.eval().to(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--items", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--settings", nargs="+", default=["0.8:50:0.8:50"])
    parser.add_argument("--cfg", type=float, default=2.0, help="guidance of the instructed items")
    parser.add_argument("--limit", type=int, default=150, help="most frames")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    net, items = load(args.weights, args.device), read_items(args.items)
    groups = {1.0: [i for i in items if not i.get("instruct")], args.cfg: [i for i in items if i.get("instruct")]}
    for text in args.settings:
        a, b, c, d = text.split(":")
        torch.manual_seed(args.seed)
        began, codes, ended, said = time.time(), [], [], []
        for cfg, group in groups.items():
            for i in range(0, len(group), 128):
                some = group[i : i + 128]
                made, ends = speak(net, some, (float(a), int(b), float(c), int(d)), cfg, args.limit, args.device)
                codes, ended, said = codes + made, ended + ends, said + some
        write_samples(args.out / f"{text.replace(':', '_')}.npz", codes, ended, said)
        result = {
            "setting": text,
            "ended": sum(ended),
            "of": len(ended),
            "frames": int(np.mean([len(c) for c in codes])),
        }
        print(json.dumps(result | {"seconds": round(time.time() - began, 1)}), flush=True)


if __name__ == "__main__":
    main()
