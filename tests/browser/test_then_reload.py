"""What is left after the page is loaded again, and what becomes of a job."""

import time


def show_again(studio):
    """Load the page anew; in JupyterLab the notebook is saved before, as it would be."""
    page = studio.page
    if studio.kind == "lab":
        page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
        page.wait_for_timeout(500)
    page.reload()
    page.wait_for_selector(".bl-board", timeout=60_000)
    studio.root.get_by_role("button", name="Make speech").wait_for()


def long_job(studio):
    """One that goes on for minutes; its process."""
    studio.shorten(120)
    studio.source("Made up")
    studio.say("A long text. " * 60, Takes=6)
    studio.make()
    studio.await_player(f"Number(d.take) > {studio.newest} && Number(d.total) > 0.5")
    return studio.kernel_states()[-1][0]


def test_a_reload_is_asked_about_where_it_would_lose_something(studio):
    studio.shorten(0.8)
    studio.source("Made up")
    studio.say("To be kept.")
    studio.make()
    assert studio.finish() == "done"
    cards = studio.cards()
    if studio.kind == "lab":
        return
    studio.stay, studio.asked[:] = True, []
    studio.page.evaluate("setTimeout(() => location.reload(), 0)")
    studio.page.wait_for_timeout(1000)
    studio.stay = False
    assert studio.asked == ["beforeunload"] and studio.cards() == cards > 0
    studio.say("")
    studio.make()
    studio.await_status("There is no text to say")  # who stays has a page that answers


def test_a_reload_in_the_middle_stops_the_job_of_a_page_of_its_own_and_none_in_lab(studio):
    process = long_job(studio)
    show_again(studio)
    if studio.kind == "voila":
        end = time.monotonic() + 120  # mostly 5: what a page says when it goes may get lost, and then it takes 60
        while studio.kernel_states()[-1] != (process, "cancelled") and time.monotonic() < end:
            time.sleep(0.2)
        assert studio.kernel_states()[-1] == (process, "cancelled")
        return
    studio.pause(6)  # a look at the pages falls into it
    assert studio.kernel_states()[-1] == (process, "working") and studio.state == "working"
    studio.press("Stop")
    studio.await_state("cancelled")


def test_lab_shows_the_same_session_after_a_reload_and_voila_a_new_one(studio):
    page = studio.page
    studio.shorten(0.8)
    studio.source("Made up")
    studio.say("Before the reload.")
    studio.number("Takes").fill("1")
    studio.make()
    assert studio.finish() == "done"
    studio.await_player("d.phase === 'done'")
    cards = studio.cards()
    show_again(studio)
    if studio.kind == "lab":
        page.locator(".bl-card").first.wait_for()
        assert "Before the reload." in page.locator(".bl-card").first.inner_text()
        assert studio.cards() == cards
        page.locator(".bl-card").first.get_by_role("button", name="Play take").click()
        page.wait_for_function("Number(document.querySelector('.bl-card').dataset.playing) > 0.1")
    else:
        assert studio.cards() == 0
        studio.shorten(0.8)
        studio.source("Made up")
    studio.say("After the reload.")
    studio.make()
    page.locator(".bl-card", has_text="After the reload.").wait_for(timeout=60_000)
    studio.finish()
    studio.await_player("Number(d.clock) > 0.3", 20)
