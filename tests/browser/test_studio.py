"""The widget in a real browser, in JupyterLab and in Voila, with a small random model: noise, but it streams."""

import io

import numpy as np
import pytest
import soundfile
from server import WORDS


@pytest.fixture(autouse=True)
def short_takes(studio):
    studio.shorten()
    studio.say("A test.", Seed=7, Takes=1)
    yield
    if studio.state in ("loading", "working"):
        studio.press("Stop")
        studio.await_state("cancelled", "done", "failed")


def test_a_ready_made_voice_streams_and_the_audio_clock_advances(studio):
    studio.shorten(60)
    studio.ready()
    studio.make()
    studio.await_player("d.phase === 'playing' && Number(d.clock) > 0.2", 60)
    first = float(studio.player("clock"))
    assert studio.state == "working"  # it sounds while it is made
    studio.pause(1.0)
    assert 0.3 < float(studio.player("clock")) - first < 2.5
    studio.shot("playing")


def test_every_sample_of_a_take_is_played(studio):
    studio.ready()
    studio.make()
    assert studio.finish() == "done"
    assert "real-time factor" in studio.status and "cut at 1.6 s" in studio.status
    studio.await_player("d.phase === 'done' && Number(d.clock) > 1.5", 30)
    assert float(studio.player("clock")) == pytest.approx(float(studio.player("total")), abs=0.01)
    studio.shot("done")


def test_an_upload_needs_words_and_consent_and_then_speaks(studio):
    studio.upload("clip.wav")
    studio.await_status("clip.wav was read, 5.5 s")
    studio.make()
    studio.await_status("The transcript of the clip is missing")
    studio.words("Hm.")
    assert "words of the clip seem to be missing" in studio.page.locator(".bl-prose .bl-warn").inner_text()
    studio.shot("missing-words")
    studio.words(WORDS)
    studio.root.get_by_text("transcript and clip fit").wait_for()
    studio.make()
    studio.await_status("Consent is missing")
    studio.agree()
    before = studio.cards()
    studio.make()
    assert studio.finish() == "done"
    assert studio.cards() == before + 1
    assert "clip.wav" in studio.page.locator(".bl-card").first.inner_text()


def test_bad_files_are_told_with_a_cure(studio):
    studio.upload("broken.wav")
    assert "Try: ffmpeg" in studio.await_status("broken.wav cannot be read")
    studio.upload("huge.wav")
    assert "path box" in studio.await_status("huge.wav has 7.5 MB")
    studio.root.get_by_label("or the path of a larger file").fill("nowhere.wav")
    studio.press("Read")
    studio.await_status("There is no file nowhere.wav")
    studio.root.get_by_label("or the path of a larger file").fill(str(studio.files["folder"] / "clip.wav"))
    studio.press("Read")
    studio.await_status("clip.wav was read")


def test_the_trim_is_typed_and_heard(studio):
    studio.ready()
    box = studio.root.get_by_label("From")
    box.fill("1.5")
    box.press("Tab")
    studio.await_status("4.5 s of harbor are selected")
    studio.press("Play the selection")
    studio.root.get_by_role("button", name="Stop playing").wait_for()
    studio.press("Stop playing")


def test_the_microphone_records_and_clones(studio):
    studio.source("Microphone")
    studio.press("Record")
    studio.page.wait_for_selector('.bl-mic[data-state="recording"]')
    studio.pause(2.2)
    studio.shot("recording")
    studio.press("Stop recording")
    studio.await_status("recording was read")
    assert float(studio.page.locator(".bl-end").input_value()) > 1.5
    studio.words("Beep, beep, and once again beep.")
    studio.agree()
    studio.make()
    assert studio.finish() == "done"
    assert "recording" in studio.page.locator(".bl-card").first.inner_text()


def test_stop_ends_the_work_and_keeps_what_was_made(studio):
    studio.shorten(60)
    studio.source("Made up")
    studio.make()
    studio.await_player(f"Number(d.take) > {studio.newest} && Number(d.total) > 0.5")
    studio.press("Stop")
    assert studio.await_state("cancelled", seconds=5) == "cancelled"
    assert "kept under “Takes”" in studio.status
    studio.await_player("d.phase === 'idle'", 5)
    assert "stopped" in studio.page.locator(".bl-card .bl-title").first.inner_text()


def test_two_takes_side_by_side_play_download_and_give_their_seed(studio):
    studio.source("Made up")
    studio.say("Two takes.", Seed=40, Takes=2)
    before = studio.cards()
    studio.make()
    assert studio.finish() == "done"
    assert studio.cards() == before + 2
    newest = studio.page.locator(".bl-card").first
    assert "41" in newest.inner_text()
    newest.get_by_role("button", name="Play take").click()
    studio.page.wait_for_function("Number(document.querySelector('.bl-card').dataset.playing) > 0.1")
    with studio.page.expect_download() as download:
        newest.get_by_role("button", name="Download take").click()
    assert download.value.suggested_filename.endswith("seed41.wav")
    with open(download.value.path(), "rb") as file, soundfile.SoundFile(io.BytesIO(file.read())) as sound:
        assert sound.samplerate == 24_000 and sound.comment.startswith("Synthetic speech")
        assert float(np.abs(sound.read()).max()) > 0
    studio.await_status("went to your downloads")
    newest.get_by_role("button", name="Use the seed").click()
    studio.await_status("Seed 41")
    assert studio.number("Seed").input_value() == "41"


def test_a_voice_is_saved_used_again_renamed_and_deleted(studio):
    name = f"Harbor {studio.kind}"
    studio.ready()
    studio.root.get_by_label("Name", exact=True).fill(name)
    studio.root.get_by_label("Name", exact=True).press("Tab")
    studio.press("Save voice")
    studio.await_status(f"Saved “{name}”")
    studio.source("Saved")
    studio.root.get_by_label("Saved voice").select_option(name)
    studio.await_status(f"Saved voice “{name}” is chosen")
    studio.make()
    assert studio.finish() == "done"
    assert name in studio.page.locator(".bl-card").first.inner_text()
    studio.root.get_by_label("New name").fill(name + " two")
    studio.root.get_by_label("New name").press("Tab")
    studio.press("Rename")
    studio.await_status("is now")
    studio.shot("saved")
    studio.press("Delete")
    studio.await_status("Press Delete again")
    studio.press("Delete")
    studio.await_status("was deleted")


def test_chips_insert_at_the_cursor(studio):
    box = studio.root.get_by_label("Text to say")
    box.fill("One two")
    box.evaluate("e => e.setSelectionRange(3, 3)")
    studio.press("(laugh)")
    assert box.input_value() == "One (laugh) two"
    assert box.evaluate("e => document.activeElement === e && e.selectionStart") == len("One (laugh)")


def test_what_was_typed_just_before_the_click_is_spoken(studio):
    """Typed in a moment, letter by letter: the page holds most of it back until the kernel answers for the first."""
    studio.source("Made up")
    studio.before, text = studio.ended, "Every letter of this, to the last."
    studio.root.get_by_label("Text to say").evaluate(
        """(box, text) => {
          for (let i = 1; i <= text.length; i++) {
            box.value = text.slice(0, i);
            box.dispatchEvent(new Event("input", { bubbles: true }));
          }
          document.querySelector(".bl-primary").click();
        }""",
        text,
    )
    assert studio.finish() == "done"
    assert studio.page.locator(".bl-card .bl-quote").first.inner_text() == text
