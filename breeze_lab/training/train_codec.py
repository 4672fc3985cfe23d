"""Trains the Waft codec. `python -m breeze_lab.training.train_codec --help`.

Phases: no quantizer -> k-means, then quantized -> with discriminators. Where there is a GPU each phase's step is
captured once as a CUDA graph. The run ends by itself after `--seconds`; the learning rate falls to nothing by then.
`--init` goes on from an earlier run; with `--freeze-codes` only the decoder learns, so codes made before stay valid.
With `--codes-until` encoder and codebooks stop there: OUT/frozen.pt makes the codes from then on, while the decoder
goes on.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch

from .codec_trainer import ADVERSARIAL, PITCH, PLAIN, QUANTIZED, Trainer, load, save, validate


class Log:
    """Lines of JSON, on the terminal and in a file that is added to; each has the seconds since the start."""

    def __init__(self, path: Path):
        self.path, self.began = path, time.time()

    @property
    def seconds(self) -> float:
        return time.time() - self.began

    def __call__(self, **entry: object) -> dict:
        line = json.dumps({"seconds": round(self.seconds, 1), **entry})
        with self.path.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)
        return json.loads(line)


def set_rates(trainer: Trainer, spent: float, step: int, since: int | None) -> None:
    """Learning rates and the discriminators' say, after the share `spent` of the time; since: steps with them."""
    args = trainer.args
    fall = 0.5 + 0.5 * math.cos(math.pi * max(0.0, (spent - 0.15) / 0.85))
    early = 0.5 + 0.5 * math.cos(math.pi * min(1.0, max(0.0, spent / args.codes_until - 0.15) / 0.85))
    warm = args.rate * min(1.0, (step + 1) / 300)
    trainer.rates["decoder"].fill_(warm * (0.02 + 0.98 * fall))
    trainer.rates["coder"].fill_(warm * args.coder_rate * (0.02 + 0.98 * early))
    trainer.rates["critics"].fill_(args.critic_rate * min(1.0, ((since or 0) + 1) / 100) * (0.1 + 0.9 * fall))
    trainer.rates["pitch"].fill_(args.pitch_rate * min(1.0, (step + 1) / 300) * (0.02 + 0.98 * fall))
    trainer.ramp.fill_(min(1.0, max(0.0, ((since or 0) - 100) / args.critic_ramp)))


def train(args: argparse.Namespace) -> dict:
    """Runs until the time limit; -> the last line of the log."""
    args.out.mkdir(parents=True, exist_ok=True)
    log = Log(args.out / "codec_log.jsonl")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    trainer = Trainer(args)
    log(event="start", hours=round(trainer.stream.hours, 3), device=trainer.device, seed=args.seed)
    trainer.fit_teacher()
    plain_steps = 0 if args.init else args.plain_steps
    pitch_steps = args.pitch_steps if args.init else 0
    every = 5 if args.micro else 250
    step, mode, started, seen, entry = 0, -1, None, 0.0, {}
    marked = saved = log.seconds
    run = None
    while (spent := log.seconds / args.seconds) < 1 and step != args.max_steps:
        if step == plain_steps and not args.init:
            trainer.start_codebooks()
            log(event="k-means", step=step)
        first = PITCH if step < pitch_steps else PLAIN if step < plain_steps else QUANTIZED
        wanted = ADVERSARIAL if first == QUANTIZED and spent > args.adversarial_from else first
        if wanted != mode:
            mode, run = wanted, None
            started = step if mode == ADVERSARIAL else None
            set_rates(trainer, spent, step, None)
            run = trainer.graph(mode)
            log(event="phase", step=step, mode=mode, peak_gb=trainer.peak_gb)
        set_rates(trainer, spent, step, None if started is None else step - started)
        if mode > PLAIN and spent > args.codes_until and not trainer.frozen:
            run = None
            trainer.freeze()
            save(args.out / "frozen.pt", trainer)
            load(args.out / "frozen.pt", trainer.codec)  # rounded as it is shipped
            log(event="codes final", step=step, **validate(trainer))
            run = trainer.graph(mode)
        trainer.fill(mode)
        run()
        step += 1
        seen += trainer.seconds(mode)
        if step % every:
            continue
        now = log.seconds
        timing = {"audio_hours": round(seen / 3600, 2), "step_ms": round((now - marked) / every * 1e3, 2)}
        entry = trainer.read_sums()
        log(step=step, mode=mode, **timing, **entry)
        marked = now
        if not math.isfinite(entry["mel"] + entry["pitch"]):
            log(event="not finite: stopped")
            break
        if trainer.stream.refresh():
            log(event="more audio", hours=round(trainer.stream.hours, 3))
        if now - saved > args.save_every:
            save(args.out / "codec.pt", trainer)
            log(event="saved", step=step, **validate(trainer))
            marked = saved = log.seconds
    torch.backends.cudnn.benchmark = False
    save(args.out / "codec.pt", trainer)
    load(args.out / "codec.pt", trainer.codec)  # judged as it is shipped
    return log(event="end", step=step, audio_hours=round(seen / 3600, 2), **validate(trainer))


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description="Trains the Waft codec on streams made by breeze_lab.training.codec_data.",
                                formatter_class=argparse.ArgumentDefaultsHelpFormatter)  # fmt: skip
    p.add_argument(
        "audio", type=Path, help="folder of train*.npy (and valid*.npy) streams; files may be added while it runs"
    )
    p.add_argument("out", type=Path, help="folder for codec.pt and codec_log.jsonl")
    p.add_argument("--seconds", type=float, default=540, help="time limit; the learning rate falls to nothing by then")
    p.add_argument("--max-steps", type=int, default=-1)
    p.add_argument("--init", type=Path, help="codec.pt or exported folder to go on from (the optimizers start anew)")
    p.add_argument("--decoder-blocks", type=int, help="with --init: give the decoder more blocks than it had")
    p.add_argument("--beam", type=int, help="sums of entries that encoding follows at a time, once codes are final")
    p.add_argument("--freeze-codes", action="store_true", help="train the decoder only")
    p.add_argument(
        "--codes-until", type=float, default=1.0, help="share of the time after which encoder and codebooks stay"
    )
    p.add_argument("--teacher", type=Path, help=".npz of breeze_lab.training.codec_teacher")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--batch", type=int, default=64, help="crops a step without discriminators")
    p.add_argument("--pitch-steps", type=int, default=0, help="with --init: steps of the pitch alone, before all else")
    p.add_argument("--pitch-rate", type=float, default=1e-3)
    p.add_argument("--adversarial-batch", type=int, default=32)
    p.add_argument("--frames", type=int, default=25, help="frames a crop")
    p.add_argument("--critic-frames", type=int, default=12, help="frames of a crop that the discriminators see")
    p.add_argument("--plain-steps", type=int, default=1500, help="steps before the quantizer")
    p.add_argument(
        "--adversarial-from", type=float, default=0.25, help="share of the time after which discriminators join"
    )
    p.add_argument(
        "--adversarial-weight",
        type=float,
        default=1.0,
        help="gradient norm at the output layer, relative to the spectral losses'",
    )
    p.add_argument(
        "--feature-weight",
        type=float,
        default=1.5,
        help="likewise, of the distance of the discriminators' feature maps",
    )
    p.add_argument("--code-dropout", type=float, default=0.1, help="share of crops with fewer codebooks")
    p.add_argument("--rate", type=float, default=8e-4)
    p.add_argument("--coder-rate", type=float, default=1.0, help="the encoder's and projections' rate, relative to it")
    p.add_argument("--codebook-decay", type=float, default=0.99, help="of the codebooks' moving averages, per step")
    p.add_argument(
        "--wave-weight",
        type=float,
        default=0.0,
        help="weight of the distance in samples; the encoder sees no phases, so it only pulls the level down",
    )
    p.add_argument("--loudness-weight", type=float, default=2.0, help="weight of the disturbances of loudness")
    p.add_argument("--critic-ramp", type=float, default=500, help="steps in which the discriminators get their say")
    p.add_argument("--critic-rate", type=float, default=4e-4)
    p.add_argument("--save-every", type=float, default=120, help="seconds between checkpoints")
    p.add_argument("--eager", action="store_true", help="no CUDA graphs")
    p.add_argument("--micro", action="store_true", help="tiny numbers, for a check on a CPU")
    return p


if __name__ == "__main__":
    train(parser().parse_args())
