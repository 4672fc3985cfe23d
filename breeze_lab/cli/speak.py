"""`breeze-lab say` and `breeze-lab clone`."""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import audio, voices
from ..checkpoint import SpeechModel
from ..checks import chosen
from ..errors import BreezeLabError
from ..frames import fastest
from ..generate import Result, join, stream_generate
from ..voice import Voice
from ..voice import check_output as check_voice_output
from . import outputs, request
from .parser import DEFAULTS, CtrlC, Progress, add_generation, add_json, add_model, load_told, print_json

STREAM_FRAMES, WHOLE_FRAMES = 4, 25  # frames a chunk with and without --stream


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
            default=DEFAULTS["max_frames"] * request.FRAME_SECONDS,
            help="most seconds of sound for one piece of the text; long text is split at sentences",
        )
        parser.add_argument("--stream", action="store_true", help="make sound in small chunks as frames are made")
        parser.add_argument(
            "--out",
            metavar="FILE",
            help=".wav, .flac, .ogg (an existing file is replaced), or - for raw 16-bit PCM; else a free speech.wav",
        )
        add_model(parser)
        add_json(parser)
    say.set_defaults(run=run_say)
    clone.set_defaults(run=run_clone)


def run_say(args: argparse.Namespace) -> int:
    text = request.read_text(args.text)
    options = request.options(args, text)
    outputs.check(args.out, args.json, [] if args.voice is None else [voices.find(args.voice)])
    model = load_told(args.model)
    voice = voices.open_voice(model, args.voice) if args.voice is not None else None
    return _speak(args, model, text, voice, options)


def run_clone(args: argparse.Namespace) -> int:
    if args.text is None and args.save_voice is None:
        raise BreezeLabError("there is no text to say. Give TEXT, or --save-voice FILE to keep the voice only.")
    if not args.ref_text.strip():
        raise BreezeLabError("the transcript is empty. Give the exact words spoken in the clip with --ref-text.")
    kept = check_voice_output(args.save_voice) if args.save_voice else None
    if args.text is None:
        request.refuse_without_text(args)
    text = None if args.text is None else request.read_text(args.text)
    options = {} if text is None else request.options(args, text)
    audio.reference(args.ref_audio)  # refuse a bad clip before the model is loaded
    if text is not None:
        outputs.check(args.out, args.json, [args.ref_audio])
    model = load_told(args.model)
    voice = Voice.from_audio(model, args.ref_audio, args.ref_text)
    if text is not None:
        return _speak(args, model, text, voice, options, kept)
    assert kept is not None
    voice.save(kept)
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
    options: dict[str, Any],
    kept: Path | None = None,
) -> int:
    """Generate, write what was made, then the voice at `kept`, and report."""
    piped, closed = args.out == outputs.PIPE, False
    with CtrlC() as cancel, Progress() as progress:
        chunks = []
        for chunk in stream_generate(
            model,
            text,
            voice=voice,
            chunk_frames=STREAM_FRAMES if args.stream or piped else WHOLE_FRAMES,
            cancel=cancel,
            progress=progress,
            **options,
        ):
            chunks.append(chunk)
            if piped and not closed and not outputs.send_pcm(chunk.samples):
                closed = True
                cancel.set()
        result = join(chunks)
        made = len(result.samples) > 0 and not piped
        written = outputs.write(args.out, result.samples, model.sample_rate) if made else None
        if kept is not None and voice is not None:
            voice.save(kept)
    _report(args, model, result, written, {"saved_voice": str(kept)} if kept else {}, closed)
    return 130 if result.finish_reason == "cancelled" and not closed else 0


def _report(
    args: argparse.Namespace,
    model: SpeechModel,
    result: Result,
    written: Path | None,
    extra: dict[str, Any],
    closed: bool,
) -> None:
    stats = result.stats
    if args.json:
        print_json(
            {
                "audio": None if written is None else str(written),
                "seconds": round(len(result.samples) / model.sample_rate, 3),
                "frames": stats.frames,
                "finish_reason": result.finish_reason,
                "seed": result.seed,
                "rtf": _rounded(stats.rtf),
                "first_audio_s": _rounded(stats.first_audio_s),
                "host_reads": stats.host_reads,
                "peak_memory_gb": _rounded(stats.peak_memory_gb),
                "model": model.name,
                "method": args.method or fastest(model.lm),
                "sampling": asdict(chosen(model.sampling, **{name: getattr(args, name) for name in request.SAMPLING})),
                **extra,
            }
        )
        return
    made = f"{len(result.samples) / model.sample_rate:.2f} s of speech, seed {result.seed}"
    if stats.rtf is not None and stats.first_audio_s is not None:
        made += f", real-time factor {stats.rtf:.2f}, first audio after {stats.first_audio_s:.2f} s"
    if closed:
        made = f"the reader closed the pipe after {made}"
    elif result.finish_reason == "cancelled":
        kept = f"only {extra['saved_voice']}" if extra else "nothing"
        made = "stopped by Ctrl-C " + (f"after {made}" if stats.frames else f"before any sound; {kept} written")
    elif result.finish_reason == "max_frames":
        made += f"; cut at --max-seconds {args.max_seconds:g} a piece before the speech ended"
    print(f"{written}: {made}" if written else made, file=sys.stderr if args.out == outputs.PIPE else sys.stdout)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
