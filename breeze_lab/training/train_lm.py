"""Train Waft's language model on packed codes.

    python -m breeze_lab.training.train_lm --codes codes --out runs/lm --seconds 560 --compile
    python -m breeze_lab.training.train_lm --codes train.npz --out /tmp/micro --micro --steps 30

Resumable: the last checkpoint in --out is taken up, with optimizer, step and clock. Files that appear in the --codes
folder while it runs join the training. OUT/log.jsonl has one row each --every steps: losses of training and of
validation, the latter with the right text and with another utterance's text. When the right text is not ahead after
--text-deadline seconds, the run stops, since the text does not reach the loss.
"""

import argparse
import json
import math
import multiprocessing as mp
import queue
import threading
import time
from pathlib import Path

import numpy as np
import torch

from . import batches, pack
from .export import read_weights
from .lm import MICRO, Batch, WaftLM, waft_config


def load_codes(path: Path, known: set[str]) -> tuple[list[dict], np.ndarray] | None:
    """Rows and codes of the files that are not yet in `known` (names are added); None if there are none."""
    files = [path] if path.suffix == ".npz" else sorted(path.glob("*.npz"))
    new = [f for f in files if f.name not in known and not f.name.endswith(".part.npz")]
    known.update(f.name for f in new)
    return pack.merge(new) if new else None


class Feed:
    """Rows and codes of a folder, read again now and then; makes batches."""

    def __init__(self, path: Path, seed: int, sizes: batches.Sizes, noise: float, *shares: float):
        self.path, self.rng, self.sizes, self.noise = path, np.random.default_rng(seed), sizes, noise
        self.shares = shares  # of the default voice, of the disguised ones
        self.known: set[str] = set()
        self.rows: list[dict] = []
        self.codes = np.zeros((0, batches.K), np.int16)
        self.refresh()

    def refresh(self) -> None:
        new = load_codes(self.path, self.known)
        if new:
            rows, codes = new
            self.rows += [{**r, "start": r["start"] + len(self.codes)} for r in rows]
            self.codes = np.concatenate([self.codes, codes])
            self.corpus = batches.Corpus(self.rows, self.codes)
            maker = batches.PromptMaker(self.corpus, self.rng, *self.shares)
            self.prompts = batches.endless(maker)

    def batch(self) -> dict[str, np.ndarray]:
        return batches.pack(self.prompts, self.sizes, self.rng, self.noise)


def _feed_forever(out: mp.Queue, status: mp.Queue, *args) -> None:
    torch.set_num_threads(1)
    feed, seen = Feed(*args), time.time()
    while True:
        if time.time() - seen > 15 and feed.path.is_dir():
            feed.refresh()
            seen = time.time()
            status.put((len(feed.rows), len(feed.codes)))
        out.put({k: torch.from_numpy(v) for k, v in feed.batch().items()})


def batch_stream(args, sizes: batches.Sizes, step: int):
    """Endless batches on the device: from worker processes, or made here where --workers is 0."""
    feed_args = (sizes, args.noise, args.heart_share, args.disguised_share)
    if not args.workers:
        feed = Feed(args.codes, args.seed + step, *feed_args)
        while True:
            yield Batch(**{k: torch.from_numpy(v) for k, v in feed.batch().items()}).to(args.device), len(feed.codes)
    context = mp.get_context("spawn")
    made, status = context.Queue(3 * args.workers), context.Queue()
    for i in range(args.workers):
        seed = args.seed + 1000 * (step + 1) + i
        context.Process(target=_feed_forever, args=(made, status, args.codes, seed, *feed_args), daemon=True).start()
    ready: queue.Queue = queue.Queue(4)

    def move() -> None:
        while True:
            ready.put(Batch(**made.get()).to(args.device))

    threading.Thread(target=move, daemon=True).start()
    frames = 0
    while True:
        while not status.empty():
            frames = max(frames, status.get()[1])
        yield ready.get(), frames


def rate(fraction: float, step: int, peak: float, warmup: int, hold: float = 0.55) -> float:
    """Warm up, hold for this share of the time, then fall to 1 %."""
    fall = max(0.0, (fraction - hold) / (1 - hold))
    return peak * min(1.0, (step + 1) / warmup) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, fall))))


class Trainer:
    """Model, optimizer, running average of the weights, and their checkpoint."""

    def __init__(self, args, sizes: batches.Sizes):
        torch.manual_seed(args.seed)
        self.args, self.step, self.clock = args, 0, 0.0
        self.config = waft_config(**(MICRO if args.micro else json.loads(args.shape)))
        self.net = WaftLM(self.config, row=sizes.row, text_row=sizes.text_row, drop=args.drop).to(args.device)
        if args.init:
            self.net.load_state_dict(read_weights(args.init))
        weights = [p for p in self.net.parameters() if p.dim() >= 2]
        vectors = [p for p in self.net.parameters() if p.dim() < 2]
        groups = [{"params": weights, "weight_decay": args.decay}, {"params": vectors, "weight_decay": 0.0}]
        fused = {"fused": True, "capturable": True} if args.device == "cuda" else {}
        self.lr = torch.tensor(args.lr, device=args.device)
        self.optimizer = torch.optim.AdamW(groups, lr=self.lr, betas=(0.9, 0.98), **fused)
        self.pull = torch.tensor(0.05, device=args.device)  # of the weights on their running average, a step
        self.graph: torch.cuda.CUDAGraph | None = None
        self.parameters = weights + vectors
        self.average = [p.detach().clone() for p in self.parameters]
        if args.compile:  # layer by layer: three small programs instead of one large one
            for stack in (self.net.text_encoder, self.net.backbone_model, self.net.depth_decoder.model):
                for layer in stack.layers:
                    layer.compile(dynamic=False)
        self.path = args.out / "state.pt"
        if self.path.exists():
            state = torch.load(self.path, map_location=args.device, weights_only=True)
            self.net.load_state_dict(state["net"])
            self.optimizer.load_state_dict(state["optimizer"])
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr
            self.step, self.clock = state["step"], state["clock"]
            for a, b in zip(self.average, state["average"], strict=True):
                a.copy_(b)

    def autocast(self):
        return torch.autocast(self.args.device, torch.bfloat16, enabled=self.args.device == "cuda")

    def train(self, batch: Batch, lr: float) -> torch.Tensor:
        self.lr.fill_(lr)
        self.step += 1
        self.pull.fill_(1 - min(0.999, (self.step + 1) / (self.step + 20)))
        if self.graph is None:
            return self.update(batch)
        self.buffer.copy_(batch)
        self.graph.replay()
        return self.found.clone()

    def update(self, batch: Batch) -> torch.Tensor:
        """One step without host reads, so that it can be captured."""
        with self.autocast():
            first, rest = self.net.losses(batch)
        (first + self.args.depth_weight * rest).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for a, p in zip(self.average, self.parameters, strict=True):
            a.lerp_(p.detach(), self.pull)
        return torch.stack([first.detach(), rest.detach(), norm.detach()])

    def capture(self, batch: Batch) -> None:
        """Captures the step as a CUDA graph (shapes never change); the weights stay as they are meanwhile."""
        self.buffer = Batch(**{k: v.clone() for k, v in batch.__dict__.items()})
        self.lr.zero_()
        self.pull.zero_()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.update(self.buffer)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.found = self.update(self.buffer)
        except RuntimeError as error:
            print(f"no CUDA graph, going on without: {error}", flush=True)
            torch.cuda.synchronize()
            return
        self.graph = graph

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the weights with their running average."""
        for p, a in zip(self.parameters, self.average, strict=True):
            kept = p.detach().clone()
            p.copy_(a)
            a.copy_(kept)

    @torch.no_grad()
    def validate(self, sets: dict[str, list[Batch]]) -> dict[str, list[float]]:
        """Losses of the averaged weights on each set."""
        self.swap()
        self.net.eval()
        with self.autocast():
            found = {
                k: torch.stack([torch.stack(self.net.losses(b)) for b in v]).mean(0).tolist() for k, v in sets.items()
            }
        self.net.train()
        self.swap()
        return {k: [round(x, 4) for x in v] for k, v in found.items()}

    def save(self) -> None:
        state = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), "average": self.average}
        torch.save({**state, "step": self.step, "clock": self.clock}, self.path.with_suffix(".part"))
        self.path.with_suffix(".part").rename(self.path)
        self.swap()
        export = {k: v.to(torch.float16).cpu() for k, v in self.net.state_dict().items()}
        self.swap()
        torch.save({"config": self.config, "weights": export, "step": self.step}, self.args.out / "weights.pt")


def wait_for_codes(path: Path, hours: float) -> None:
    """Until the folder holds this many hours of codes."""
    while True:
        files = [path] if path.suffix == ".npz" else [f for f in path.glob("*.npz") if not f.name.endswith(".part.npz")]
        size = sum(f.stat().st_size for f in files if f.exists()) / (18 * 12.5 * 3600)  # 18 bytes a frame
        if size >= hours:
            return
        time.sleep(1)


def validation_sets(args, sizes: batches.Sizes) -> dict[str, list[Batch]]:
    """Held-out texts of the codes that are there now: with the right text, and with another's."""
    rows, codes = load_codes(args.codes, set())  # type: ignore[misc]
    held = batches.Corpus(rows, codes, validation=True)
    made = {name: batches.validation_batches(held, sizes, wrong_text=name == "wrong") for name in ("right", "wrong")}
    return {
        k: [Batch(**{n: torch.from_numpy(a) for n, a in b.items()}).to(args.device) for b in v] for k, v in made.items()
    }


def run(args) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    sizes = batches.MICRO_SIZES if args.micro else batches.Sizes(chosen=args.chosen)
    began = time.time()
    trainer = Trainer(args, sizes)
    log = (args.out / "log.jsonl").open("a")
    print(f"{sum(p.numel() for p in trainer.parameters) / 1e6:.2f} M parameters, step {trainer.step}", flush=True)
    wait_for_codes(args.codes, args.min_hours)
    sets = validation_sets(args, sizes) if args.graph else {}
    if args.graph:
        trainer.capture(sets["right"][0])
        print(f"captured after {time.time() - began:.0f} s", flush=True)
    stream = batch_stream(args, sizes, trainer.step)
    total, earlier, mark, counted = torch.zeros(3, device=args.device), trainer.clock, time.time(), 0
    while True:
        spent = earlier + time.time() - began
        fraction = trainer.step / args.steps if args.steps else spent / args.seconds
        if fraction >= 1 or time.time() - began > args.stop_after:
            break
        batch, frames = next(stream)
        total += trainer.train(batch, rate(fraction, trainer.step, args.lr, args.warmup, args.hold))
        counted += 1
        if trainer.step % args.every == 0:
            trainer.clock = earlier + time.time() - began
            first, rest, norm = (total / counted).tolist()
            row = {
                "step": trainer.step,
                "seconds": round(trainer.clock, 1),
                "ms": round(1e3 * (time.time() - mark) / counted, 1),
            }
            row |= {"first": round(first, 4), "rest": round(rest, 4), "norm": round(norm, 2)}
            sets = sets or validation_sets(args, sizes)
            row |= {"hours": round(frames * 0.08 / 3600, 2), **trainer.validate(sets)}
            log.write(json.dumps(row) + "\n")
            log.flush()
            print(json.dumps(row), flush=True)
            ahead = row["wrong"][0] - row["right"][0]
            if trainer.clock > args.text_deadline and ahead < 0.03:
                raise SystemExit(
                    f"stopped: the right text is only {ahead:.3f} nats ahead, so the text does not reach the loss"
                )
            total.zero_()
            mark, counted = time.time(), 0
        if args.save_every and trainer.step % args.save_every == 0:
            trainer.save()
    trainer.clock = earlier + time.time() - began
    trainer.save()
    print(f"saved at step {trainer.step}, {trainer.clock:.0f} s", flush=True)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--codes", type=Path, required=True, help="file or folder of packed codes")
    add("--out", type=Path, required=True)
    add("--init", type=Path, help="start from the weights of this exported checkpoint, data/waft say")
    add(
        "--seconds",
        type=float,
        default=600,
        help="length of the whole run, over all its sittings; sets the learning rate's fall",
    )
    add("--steps", type=int, default=0, help="length in steps instead")
    add("--stop-after", type=float, default=1e9, help="seconds of this sitting")
    add("--shape", default="{}", help='changes of the sizes, JSON: {"backbone": {"num_hidden_layers": 6}}')
    add("--micro", action="store_true", help="a tiny model and tiny batches, for tests")
    add("--lr", type=float, default=1.5e-3)
    add("--warmup", type=int, default=300)
    add("--hold", type=float, default=0.55, help="share of the run before the learning rate falls")
    add("--chosen", type=int, default=4096, help="frames a step whose acoustic codebooks are learned")
    add("--drop", type=float, default=0.1)
    add("--decay", type=float, default=0.05)
    add("--noise", type=float, default=0.15, help="highest rate of wrong codes in the input")
    add("--depth-weight", type=float, default=2.0)
    add("--heart-share", type=float, default=0.45, help="share of prompts in the default voice")
    add("--disguised-share", type=float, default=0.6, help="share of the others in disguised voices, where there are")
    add("--every", type=int, default=200, help="steps between two rows of the log")
    add("--save-every", type=int, default=2000)
    add("--text-deadline", type=float, default=120)
    add("--min-hours", type=float, default=0.0, help="wait until the folder holds so much")
    add("--workers", type=int, default=0, help="processes that make batches")
    add("--compile", action="store_true")
    add("--graph", action="store_true", help="capture the step as a CUDA graph")
    add("--seed", type=int, default=1)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    run(parser.parse_args(argv))


if __name__ == "__main__":
    main()
