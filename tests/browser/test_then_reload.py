"""What is left after the page is loaded again."""


def test_lab_shows_the_same_session_after_a_reload_and_voila_a_new_one(studio):
    page = studio.page
    studio.shorten(0.8)
    studio.source("Made up")
    studio.say("Before the reload.")
    studio.make()
    assert studio.finish() == "done"
    studio.await_player("d.phase === 'done'")
    cards = studio.cards()
    if studio.kind == "lab":
        page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
        page.wait_for_timeout(500)
    page.reload()
    page.wait_for_selector(".bl-board", timeout=60_000)
    studio.root.get_by_role("button", name="Make speech").wait_for()
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
