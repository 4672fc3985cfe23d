"""Labels, contrast, keyboard order and width of the page."""

import importlib.util
from pathlib import Path

import pytest

AXE = "axe_playwright_python"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


@pytest.fixture(scope="module")
def axe() -> str:
    found = importlib.util.find_spec(AXE)
    if found is None or not found.submodule_search_locations:
        pytest.skip("axe-core is missing. Install it: pip install axe-playwright-python")
    return (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")


def faults(studio, axe: str) -> list[str]:
    """Every violation inside the widget, one line each."""
    studio.page.evaluate(axe)
    result = studio.page.evaluate(
        "tags => axe.run('.bl-studio', {runOnly: {type: 'tag', values: tags}})",
        TAGS,
    )
    return [
        f"{v['id']}: {v['help']}: {node['html'][:160]} {node.get('failureSummary', '')}"
        for v in result["violations"]
        for node in v["nodes"]
    ]


@pytest.mark.parametrize("source", ["Ready-made", "Upload", "Microphone", "Saved", "Made up"])
def test_axe_finds_nothing(studio, axe, source):
    if source == "Ready-made":
        studio.ready()
        studio.root.get_by_text("Advanced sampling").click()
        studio.root.get_by_text("Model, memory and license").click()
    elif source == "Upload":
        studio.upload("clip.wav")
        studio.await_status("clip.wav was read")
    else:
        studio.source(source)
    assert faults(studio, axe) == []


def test_axe_finds_nothing_with_takes_and_an_error(studio, axe):
    studio.shorten(0.8)
    studio.source("Made up")
    studio.say("A test.")
    studio.make()
    assert studio.finish() == "done"
    studio.say("")
    studio.make()
    studio.await_status("There is no text to say")
    assert faults(studio, axe) == []


def test_the_keyboard_reaches_everything_in_reading_order(studio):
    page = studio.page
    studio.source("Made up")
    page.locator(".bl-sources button").first.focus()
    order = ["Text to say", "Manner", "Instruction", "CFG", "Seed", "Takes", "Make speech"]
    seen: list[str] = []
    for _ in range(60):
        name = page.evaluate(
            "() => { const e = document.activeElement;"
            " return (e.labels?.[0]?.textContent || e.getAttribute('aria-label') || e.textContent || '').trim(); }"
        )
        seen.append(name)
        if name.startswith("Make speech"):
            break
        page.keyboard.press("Tab")
    places = [next((i for i, name in enumerate(seen) if name.startswith(wanted)), -1) for wanted in order]
    assert -1 not in places and places == sorted(places), seen


def test_the_keyboard_alone_makes_and_stops(studio):
    page = studio.page
    studio.shorten(60)
    studio.source("Made up")
    studio.say("By keys alone.", Seed=7, Takes=1)
    studio.root.get_by_role("button", name="Make speech").focus()
    studio.newest = int(studio.player("take") or 0)
    page.keyboard.press("Enter")
    studio.await_player(f"Number(d.take) > {studio.newest} && Number(d.total) > 0.3")
    assert page.evaluate("document.activeElement.textContent") == "Stop"
    page.keyboard.press("Enter")
    studio.await_state("cancelled")
    page.wait_for_function("document.activeElement.textContent === 'Make speech'", timeout=5000)


@pytest.mark.parametrize(
    ("label", "typed", "shown", "told"),
    [
        ("Seed", "1.5", "1.5", "a whole number from 0 to 4294967295"),
        ("Seed", "-1", "-1", "a whole number from 0"),
        ("Temperature", "1e", "", "a number from 0 to 2"),  # the browser hides what is no number
    ],
)
def test_numbers_stay_as_they_are_typed_and_their_label_says_what_is_wrong(studio, label, typed, shown, told):
    studio.shorten()
    box = studio.number(label)
    before = box.input_value()
    box.focus()
    studio.page.keyboard.press("Control+a")
    studio.page.keyboard.type(typed)
    studio.root.locator("label", has_text=f"{label}: choose {told}").wait_for()
    studio.pause(0.5)  # what was typed on the way must not pass for it
    assert box.input_value() == shown and box.get_attribute("aria-invalid") == "true"
    studio.source("Made up")
    studio.make()
    studio.await_status(f"{label}: choose {told}")
    box.fill(before)
    studio.root.locator("label", has_text=f"{label}, 0 to").wait_for()


def test_axe_finds_nothing_in_the_dark(studio, axe):
    if studio.kind == "lab":
        pytest.skip("Voila takes the theme from its address.")
    light, studio.page = studio.page, studio.context.new_page()
    try:
        studio.page.goto(f"{studio.server.url}?theme=dark&voila-theme=dark", timeout=90_000)
        studio.page.wait_for_selector(".bl-board", timeout=60_000)
        studio.ready()
        studio.number("Seed").fill("-1")
        studio.root.get_by_text("Seed: choose").wait_for()
        studio.shot("dark")
        assert faults(studio, axe) == []
    finally:
        studio.page.close()
        studio.page = light


@pytest.mark.parametrize("width", [1200, 800, 480])
def test_nothing_is_cut_off_at_this_width(studio, width):
    if studio.kind == "lab" and width < 800:
        pytest.skip("JupyterLab's own side bars leave no room at this width.")
    studio.ready()
    studio.page.set_viewport_size({"width": width, "height": 1200})
    studio.page.wait_for_timeout(200)
    wide = studio.page.evaluate(
        "() => [...document.querySelectorAll('.bl-section')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    )
    studio.shot(f"width-{width}", width, 3000)
    assert wide == 0
