"""Figures of the widget in a real browser: gaps, first sound, how soon Stop frees the device, likeness of three clones.

python tests/browser/measure.py [--model FOLDER] [--seconds 20] [--text "..."] [--stops 5]

Without a model it is the small random one of the tests, which speaks (noise) until the limit.
"""

import argparse
import json
import os
import platform
import tempfile
import threading
import time
from pathlib import Path

import server
from conftest import FLAGS, chromium
from playwright.sync_api import sync_playwright
from studio_page import StudioPage

from breeze_lab.widgets import CloneSession, Request

VOICES = ["sarah", "george", "austen"]  # of data/voices


def stream(page: StudioPage, seconds: float, text: str) -> dict[str, float | int | str]:
    """One stream to its end, by the audio clock of the page."""
    page.shorten(seconds)
    page.say(text, Seed=7)
    page.make()
    began = time.perf_counter()
    page.await_player(f"Number(d.take) > {page.newest} && d.phase === 'playing'", 120)
    sounded = time.perf_counter() - began
    page.finish(300)
    page.await_player("d.phase === 'done'", 120)
    return {
        "seconds_of_sound": float(page.player("total")),
        "seconds_played_by_the_audio_clock": float(page.player("clock")),
        "gaps": int(page.player("gaps")),
        "button_to_playing_s": round(sounded, 2),
        "status": page.status,
    }


def stops(page: StudioPage, times: int) -> list[float]:
    """Milliseconds from the click on Stop to `cancelled` in the page: both ways of the wire are in it."""
    took = []
    for _ in range(times):
        page.shorten(60)
        page.make()
        page.await_player(f"Number(d.take) > {page.newest} && Number(d.total) > 0.5", 60)
        took.append(
            page.page.evaluate(
                """() => new Promise((done) => {
                  const board = document.querySelector('.bl-board'), began = performance.now();
                  new MutationObserver((_, o) => {
                    if (board.dataset.state === 'cancelled') { o.disconnect(); done(performance.now() - began); }
                  }).observe(board, { attributes: true });
                  document.querySelector('.bl-stop').click();
                })"""
            )
        )
    return [round(ms, 1) for ms in took]


def clones(page: StudioPage, names: list[str]) -> dict[str, str]:
    """One clone of each voice through the page; what its card says of the timbre."""
    told = {}
    page.shorten(12)
    page.say("I did not say this, but my voice did.", Seed=7)
    for name in names:
        page.ready(name)
        page.make()
        page.finish(300)
        lines = page.page.locator(".bl-card").first.locator("dd").all_inner_texts()
        told[name] = lines[-1]
    return told


def stops_alone(model: Path, times: int) -> dict[str, float | list[float]]:
    """Without a page: milliseconds from `stop()` until the worker is free, beside the time of a frame."""
    session = CloneSession(source=str(model))
    took, frame = [], []
    for _ in range(times):
        sounding = threading.Event()
        forget = session.on("progress", lambda p, e=sounding: p.seconds > 0.5 and e.set())
        session.start(Request("A text that goes on and on.", max_seconds=60))
        sounding.wait(120)
        session.stop()
        session.wait()
        forget()
        took.append(round(1000 * (session.stop_latency_s or 0), 1))
        frame.append(1000 * session.takes[0].rtf / 12.5)
    return {"stop_ms": took, "frame_ms": round(sum(frame) / len(frame), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--text", default="The salt breeze came across from the sea. " * 8)
    parser.add_argument("--stops", type=int, default=5)
    arguments = parser.parse_args()
    files = server.make_files(Path(tempfile.mkdtemp()))
    if arguments.model:
        files |= {"model": Path(arguments.model).resolve(), "ready": server.ROOT / "data" / "voices"}
    running = server.voila(files, "studio.ipynb")
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            page = StudioPage(browser, running, "voila", files, Path(tempfile.mkdtemp()))
            page.open()
            page.ready(VOICES[0] if arguments.model else "harbor")
            page.shorten(1)
            page.make()
            page.finish(120)  # warm-up: the model is loaded, the voice encoded
            told = {"machine": platform.machine(), "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
            told |= {
                "stream": stream(page, arguments.seconds, arguments.text),
                "stop_seen_in_the_page_ms": stops(page, arguments.stops),
            }
            told |= {"clones": clones(page, VOICES if arguments.model else ["harbor"])}
            told |= {"stop_in_the_kernel": stops_alone(files["model"], arguments.stops)}
            print(json.dumps(told, indent=1, ensure_ascii=False))
    finally:
        running.stop()


if __name__ == "__main__":
    main()
