"""Pages that go: a job that nobody hears is stopped, unsaved things are asked about, removed takes come back."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import widgets_fakes
from widgets_fakes import WORDS, FakeEngine, page, press, tone, upload, wav

pytest.importorskip("ipywidgets")
pytest.importorskip("anywidget")

from breeze_lab.widgets import view
from breeze_lab.widgets.events import State
from breeze_lab.widgets.pages import TICK_S, Pages

no_swallowed_errors, studio, ready = widgets_fakes.no_swallowed_errors, widgets_fakes.studio, widgets_fakes.ready


def look(pages, seconds, start=1000.0):
    """Seconds until `pages` are gone, asked every TICK_S from `start` on; None if they are not within `seconds`."""
    for tick in range(int(seconds / TICK_S) + 1):
        if pages.gone(start + tick * TICK_S):
            return tick * TICK_S
    return None


def test_a_page_is_gone_when_it_is_silent_for_longer_than_it_said():
    pages = Pages()
    assert look(pages, 1000) is None  # nobody ever spoke: a script
    pages.hear("a", 150, 1000.0)
    assert look(pages, 1000) == pytest.approx(150, abs=TICK_S)
    pages.hear("a", 150, 1000.0)
    pages.hear("b", 0, 1000.0)  # closed, and the other is there
    assert look(pages, 145) is None
    pages.hear("a", 0, 1000.0)
    assert look(pages, 100) == pytest.approx(0, abs=TICK_S)
    pages.begin()
    assert look(pages, 1000) is None


def test_a_page_in_the_background_which_speaks_once_a_minute_is_there():
    pages = Pages()
    for minute in range(10):
        pages.hear("a", 150, 1000.0 + 60 * minute)
        assert look(pages, 60, 1000.0 + 60 * minute) is None


def test_a_cell_that_keeps_the_kernel_busy_does_not_make_a_page_silent():
    pages = Pages()
    pages.hear("a", 150, 1000.0)
    assert look(pages, 100) is None
    assert not pages.gone(2000.0)  # the first look after a long cell; the words of the page are read after it
    assert look(pages, 40, 2005.0) is None
    assert look(pages, 100, 2045.0) is not None


def test_the_job_of_a_closed_page_is_stopped_and_one_without_a_page_goes_on(tmp_path, ready, monkeypatch):
    monkeypatch.setattr(view, "TICK_S", 0.02)
    gate = threading.Semaphore(2)

    async def served():
        made = page(tmp_path, FakeEngine(frames=1000, gate=gate))  # on a loop, as in a kernel
        made.voice.source.value = "none"
        made.make.click()
        await asyncio.sleep(0.2)
        assert not made.session.stopping
        made.board._handle_custom_msg({"type": "page", "page": "a", "seconds": 150}, [])
        await asyncio.sleep(0.2)
        assert not made.session.stopping
        made.board._handle_custom_msg({"type": "page", "page": "a", "seconds": 0}, [])
        end = time.monotonic() + 10
        while not made.session.stopping and time.monotonic() < end:
            await asyncio.sleep(0.02)
        gate.release(1000)
        return made

    with ThreadPoolExecutor(1) as pool:  # browser tests leave a loop running in this thread
        made = pool.submit(asyncio.run, served()).result()
    assert made.session.wait(10) is State.CANCELLED
    assert "kept under “Takes”" in made.board.text and made.board.text.endswith("The page was closed.")
    made.session.close()


def test_leaving_is_asked_about_while_a_take_a_text_or_a_recording_would_be_lost(studio):
    assert not studio.board.unsaved
    press(studio)
    assert studio.board.unsaved
    studio.takes.send_wav = lambda *args: None
    studio.takes._handle_custom_msg({"type": "wav", "number": 1, "why": "play"}, [])
    assert studio.board.unsaved
    studio.takes._handle_custom_msg({"type": "wav", "number": 1, "why": "save"}, [])
    assert not studio.board.unsaved
    studio.text.text.value += " And more."
    assert studio.board.unsaved
    studio.text.text.value = ""
    assert not studio.board.unsaved
    upload(studio, wav(tone()))
    assert not studio.board.unsaved  # the file is there still
    studio.session.use_samples(tone(), 24_000)
    assert studio.board.unsaved


def test_removed_takes_come_back(studio):
    for _ in range(3):
        press(studio)
    studio.clear.click()
    assert studio.takes.items == [] and "3 takes were removed" in studio.board.text
    assert studio.back.layout.display is None and studio.clear.layout.display == "none"
    studio.back.click()
    assert [item["number"] for item in studio.takes.items] == [3, 2, 1] and studio.back.layout.display == "none"
    studio.takes._handle_custom_msg({"type": "drop", "number": 2}, [])
    assert "Take 2 was removed" in studio.board.text
    press(studio)
    studio.back.click()
    assert [item["number"] for item in studio.takes.items] == [4, 3, 2, 1]


def test_two_fast_presses_make_one_take_and_it_is_heard(tmp_path, ready):
    gate = threading.Semaphore(0)
    made = page(tmp_path, FakeEngine(gate=gate))
    made.voice.source.value = "none"
    sent = []
    made.player.send = lambda content, buffers=None: sent.append(content["type"])
    made.make.click()
    gate.release(3)
    end = time.monotonic() + 10
    while "sound" not in sent and time.monotonic() < end:
        time.sleep(0.01)
    made.make.click()
    assert "at work" in made.board.text and made.board.state == "working"
    gate.release(100)
    made.session.wait(10)
    assert sent[0] == "halt" and "halt" not in sent[1:] and len(made.session.takes) == 1
    made.session.close()


def test_a_refused_press_leaves_what_sounds_alone(studio):
    studio.text.text.value = WORDS
    press(studio)
    sent = []
    studio.player.send = lambda content, buffers=None: sent.append(content["type"])
    studio.text.text.value = ""
    press(studio)
    assert "no text to say" in studio.board.text and not sent and studio.board.state == "idle"


def test_a_click_waits_for_what_was_typed_before_it(studio):
    """Where a page is there: it sends a click at once, and what was typed when the kernel has answered."""
    sent = []
    studio.board.send = lambda content, buffers=None: sent.append(content)
    studio.board._handle_custom_msg({"type": "here"}, [])
    studio.make.click()
    assert sent == [{"type": "settle", "number": 1}] and not studio.session.busy
    studio.text.text.value = "All of it."
    for _ in range(2):  # a second page answers as well
        studio.board._handle_custom_msg({"type": "settled", "number": 1}, [])
    studio.session.wait(10)
    (take,) = studio.session.takes
    assert take.request.text == "All of it."
