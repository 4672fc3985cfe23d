"""`breeze-lab say` and `breeze-lab clone`."""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .. import audio, voices
from ..checkpoint import SpeechModel, load
from ..errors import BreezeLabError
from ..generate import Result, join, stream_generate
from ..voice import Voice
from ..voice import check_output as check_voice_output
from .parser import DEFAULTS, CtrlC, Progress, add_generation, add_json, add_model, print_json

FRAME_SECONDS = 0.08
STREAM_FRAMES, WHOLE_FRAMES = 2, 25  # frames a chunk with and without --stream


def add(commands: Any) -> None:
    """Add both commands to the parser."""
    say = commands.add_parser("say", help="speak a text", description="Speak a text into a sound file.")
    say.add_argument("text", metavar="TEXT", help="what to say; - reads standard input")
    say.add_argument("--voice", metavar="FILE|NAME", help="a saved voice, or one of data/voices; see breeze-lab info")
    clone = commands.add_parser(
        "clone", help="speak in the voice of a clip", description="Speak in the voice of a reference clip of 3 to 15 s."
    )
    clone.add_argument("text", metavar="TEXT", nargs="?", help="what to say; - reads standard input")
    clone.add_argument("--ref-audio", metavar="CLIP", required=True, help="WAV, FLAC, OGG or MP3 of one speaker")
    clone.add_argument("--ref-text", metavar="WORDS", required=True, help="the exact words spoken in the clip")
    clone.add_argument("--save-voice", metavar="FILE", help="keep the encoded voice as .safetensors for --voice")
    for parser in (say, clone):
        add_generation(parser)
        parser.add_argument(
            "--max-seconds",
            type=float,
            default=DEFAULTS["max_frames"] * FRAME_SECONDS,
            help="most seconds of sound for one piece of the text; long text is split at sentences",
        )
        parser.add_argument("--stream", action="store_true", help="make sound in small chunks as frames are made")
        parser.add_argument(
            "--out", metavar="FILE", help=".wav, .flac, .ogg, or - for raw 16-bit PCM; else the next free speech.wav"
        )
        add_model(parser)
        add_json(parser)
    say.set_defaults(run=run_say)
    clone.set_defaults(run=run_clone)


def run_say(args: argparse.Namespace) -> int:
    text, out = _text(args.text), _output(args)
    if args.voice is not None:
        voices.find(args.voice)
    model = _load(args)
    voice = voices.open_voice(model, args.voice) if args.voice is not None else None
    return _speak(args, model, text, voice, out)


def run_clone(args: argparse.Namespace) -> int:
    if args.text is None and args.save_voice is None:
        raise BreezeLabError("there is no text to say. Give TEXT, or --save-voice FILE to keep the voice only.")
    if not args.ref_text.strip():
        raise BreezeLabError("the transcript is empty. Give the exact words spoken in the clip with --ref-text.")
    text = None if args.text is None else _text(args.text)
    out = _output(args) if text is not None else Path()
    kept = check_voice_output(args.save_voice) if args.save_voice else None
    audio.reference(args.ref_audio)  # refuse a bad clip before the model is loaded
    model = _load(args)
    voice = Voice.from_audio(model, args.ref_audio, args.ref_text)
    if kept:
        voice.save(kept)
    if text is not None:
        return _speak(args, model, text, voice, out, {"saved_voice": str(kept)} if kept else {})
    if args.json:
        print_json({"saved_voice": str(kept), "seconds": voice.seconds, "frames": voice.codes.shape[0]})
    else:
        print(f"{kept}: a voice of {voice.seconds:.1f} s")
    return 0


def _speak(
    args: argparse.Namespace,
    model: SpeechModel,
    text: str,
    voice: Voice | None,
    out: Path | None,
    extra: dict[str, Any] | None = None,
) -> int:
    """Generate, write what was made, report. `out` None means PCM on standard output."""
    options = {
        name: getattr(args, name)
        for name in "instruct cfg_scale seed temperature top_k top_p repetition_penalty speaker method".split()
    }
    with CtrlC() as cancel, Progress() as progress:
        chunks = []
        for chunk in stream_generate(
            model,
            text,
            voice=voice,
            max_frames=_frames(args.max_seconds),
            chunk_frames=STREAM_FRAMES if args.stream or out is None else WHOLE_FRAMES,
            cancel=cancel,
            progress=progress,
            **options,
        ):
            chunks.append(chunk)
            if out is None and not _send_pcm(chunk.samples):
                cancel.set()
        result = join(chunks)
        stopped = result.finish_reason == "cancelled"
        if out is not None and len(result.samples):
            audio.write(out, result.samples, model.sample_rate)
    _report(args, model, result, out, extra or {})
    return 130 if stopped else 0


def _report(
    args: argparse.Namespace, model: SpeechModel, result: Result, out: Path | None, extra: dict[str, Any]
) -> None:
    stats = result.stats
    written = str(out) if out is not None and len(result.samples) else None
    if args.json:
        print_json(
            {
                "audio": written,
                "seconds": round(len(result.samples) / model.sample_rate, 3),
                "frames": stats.frames,
                "finish_reason": result.finish_reason,
                "seed": result.seed,
                "rtf": _rounded(stats.rtf),
                "first_audio_s": _rounded(stats.first_audio_s),
                "host_reads": stats.host_reads,
                "peak_memory_gb": _rounded(stats.peak_memory_gb),
                "model": model.name,
                "method": args.method,
                **extra,
            }
        )
        return
    made = f"{len(result.samples) / model.sample_rate:.2f} s of speech, seed {result.seed}"
    if stats.rtf is not None and stats.first_audio_s is not None:
        made += f", real-time factor {stats.rtf:.2f}, first audio after {stats.first_audio_s:.2f} s"
    if result.finish_reason == "cancelled":
        made = (
            f"stopped by Ctrl-C after {made}" if stats.frames else "stopped by Ctrl-C before any sound; nothing written"
        )
    elif result.finish_reason == "max_frames":
        made += f"; cut at --max-seconds {args.max_seconds:g} before the speech ended"
    print(f"{written}: {made}" if written else made, file=sys.stderr if out is None else sys.stdout)


def _load(args: argparse.Namespace) -> SpeechModel:
    return load(args.model)


def _text(given: str) -> str:
    text = sys.stdin.read() if given == "-" else given
    if not text.strip():
        raise BreezeLabError("the text is empty. Give at least one word to say.")
    return text


def _output(args: argparse.Namespace) -> Path | None:
    """Where to write, checked before any work; None for standard output."""
    if args.out == "-":
        if args.json:
            raise BreezeLabError("--json and --out - both want standard output. Give --out a file name.")
        if sys.stdout.isatty():
            raise BreezeLabError("--out - writes raw sound, and standard output is a terminal. Pipe it into a player.")
        return None
    if args.out is not None:
        return audio.check_output(args.out)
    names = ("speech.wav", *(f"speech-{n}.wav" for n in range(2, 10_000)))
    return audio.check_output(next(Path(name) for name in names if not Path(name).exists()))


def _frames(seconds: float) -> int:
    if not 0 < seconds < math.inf:
        raise BreezeLabError(f"--max-seconds {seconds:g} is not a positive number. Leave it out for 60.")
    return max(1, math.ceil(seconds / FRAME_SECONDS - 1e-9))


def _send_pcm(samples: np.ndarray) -> bool:
    """Write float [N] as signed 16-bit little-endian to standard output; False once nobody reads it."""
    pcm = (np.clip(samples, -1.0, 1.0) * 32767.0).round().astype("<i2")
    try:
        sys.stdout.buffer.write(pcm.tobytes())
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        return False
    return True


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
