"""What a person does on the page, as methods."""

import re
import time
from pathlib import Path
from typing import Any

SHORT_S = 1.6  # length of the takes: the random model of these tests does not stop by itself


class StudioPage:
    def __init__(self, browser: Any, server: Any, kind: str, files: dict[str, Path], artifacts: Path):
        self.server, self.kind, self.files, self.artifacts = server, kind, files, artifacts
        self.context = browser.new_context(
            viewport={"width": 1200, "height": 900}, permissions=["microphone"], accept_downloads=True
        )
        # Voila's template asks for fonts and MathJax from elsewhere; these tests need no network.
        self.context.route(
            lambda url: "127.0.0.1" not in url and url.startswith("http"), lambda r: r.fulfill(status=204)
        )
        self.errors: list[str] = []
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.page.on("console", lambda m: m.type == "error" and self._note(f"{m.text} {m.location}"))
        self.asked: list[str] = []  # questions of the browser; a page may go unless `stay`
        self.stay = False
        self.page.on("dialog", self._answer)
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))

    def _answer(self, dialog: Any) -> None:
        self.asked.append(dialog.type)
        dialog.dismiss() if self.stay else dialog.accept()

    def _note(self, error: str) -> None:
        # Voila's own beacon at unload lacks the token that its server asks for (0.5.13); culling ends such kernels.
        if "voila/api/shutdown" not in error:
            self.errors.append(error)

    def open(self) -> None:
        page = self.page
        if self.kind == "voila":
            page.goto(self.server.url, timeout=90_000)
        else:
            page.goto(f"{self.server.url}/tree/studio.ipynb?reset", timeout=90_000)
            page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
            page.wait_for_function(
                "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel", timeout=60_000
            )
            page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait_for_selector(".bl-board", timeout=60_000)
        self.root.get_by_role("button", name="Make speech").wait_for()

    def close(self) -> None:
        self.context.close()

    def shot(self, name: str, width: int = 1200, height: int = 2300) -> Path:
        """A picture of the page: tall enough that nothing scrolls away."""
        self.artifacts.mkdir(parents=True, exist_ok=True)
        path = self.artifacts / f"{self.kind}-{name}.png"
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.locator(".bl-studio").evaluate("e => e.scrollIntoView()")
        self.page.wait_for_timeout(150)
        self.page.locator(".bl-studio").screenshot(path=path)
        self.page.set_viewport_size({"width": 1200, "height": 900})
        return path

    # --- what is on the page

    @property
    def root(self) -> Any:
        return self.page.locator(".bl-studio")

    def _await(self, action: Any, wanted: str) -> None:
        """`action`, and when it fails what the page shows instead."""
        try:
            action()
        except Exception as error:
            player = self.page.locator(".bl-player").evaluate("e => JSON.stringify(e.dataset)")
            self.shot("failed")
            raise AssertionError(f"waited for {wanted}; {self.state}: {self.status!r}; player {player}") from error

    @property
    def status(self) -> str:
        return self.page.locator(".bl-status .bl-text").inner_text()

    @property
    def state(self) -> str:
        return self.page.locator(".bl-board").get_attribute("data-state") or ""

    def player(self, name: str) -> str:
        return self.page.locator(".bl-player").get_attribute(f"data-{name}") or ""

    def await_status(self, text: str, seconds: float = 30.0) -> str:
        found = self.page.locator(".bl-status .bl-text", has_text=text)
        self._await(lambda: found.wait_for(timeout=1000 * seconds), text)
        return self.status

    def await_state(self, *states: str, seconds: float = 60.0) -> str:
        selector = ", ".join(f'.bl-board[data-state="{s}"]' for s in states)
        self._await(lambda: self.page.wait_for_selector(selector, timeout=1000 * seconds), str(states))
        return self.state

    def await_player(self, test: str, seconds: float = 30.0) -> None:
        """`test` is JavaScript on `d`, the player's data."""
        code = f"() => {{ const d = document.querySelector('.bl-player').dataset; return {test}; }}"
        self._await(lambda: self.page.wait_for_function(code, timeout=1000 * seconds), test)

    # --- what a person does

    def press(self, name: str) -> None:
        self.root.get_by_role("button", name=name, exact=True).click()

    def source(self, name: str) -> None:
        self.page.locator(".bl-sources").get_by_role("button", name=name, exact=True).click()

    def say(self, text: str, **numbers: Any) -> None:
        """Type the text; numbers by the label of their box."""
        self.root.get_by_label("Text to say").fill(text)
        for label, value in numbers.items():
            self.number(label).fill(str(value))

    def number(self, label: str) -> Any:
        return self.root.get_by_role("spinbutton", name=re.compile(f"^{label}"))

    def shorten(self, seconds: float = SHORT_S) -> None:
        box = self.number("Longest piece")
        if not box.is_visible():
            self.root.get_by_text("Advanced sampling").click()
        box.fill(str(seconds))

    def upload(self, name: str) -> None:
        self.source("Upload")
        with self.page.expect_file_chooser() as chooser:
            self.root.get_by_role("button", name="Choose a file").click()
        chooser.value.set_files(self.files["folder"] / name)

    def words(self, text: str) -> None:
        self.root.get_by_label("Words of the clip").fill(text)

    def agree(self) -> None:
        self.root.get_by_label("The speaker is me or agreed").check()

    def ready(self, name: str = "harbor") -> None:
        self.source("Ready-made")
        box = self.root.get_by_label("Ready-made voice")
        if box.input_value() == name:
            box.select_option(label="Choose a voice…")
            self.await_status("No ready-made voice is chosen")  # what is told next is told of the choice below
        box.select_option(name)
        self.await_status(f"{name} is chosen")

    def kernel_states(self) -> list[tuple[str, str]]:
        """(process, state) of all jobs so far, in all kernels."""
        lines = self.files["states"].read_text().splitlines()
        return [(process, state) for process, state in map(str.split, lines)]

    @property
    def ended(self) -> int:
        """Jobs that have ended on this page."""
        return int(self.page.locator(".bl-board").get_attribute("data-ended") or 0)

    def make(self) -> None:
        self.before, self.newest = self.ended, int(self.player("take") or 0)
        self.press("Make speech")

    def finish(self, seconds: float = 60.0) -> str:
        """Wait for the end of the job that `make` began; its state."""
        code = f"() => Number(document.querySelector('.bl-board').dataset.ended) > {self.before}"
        self._await(lambda: self.page.wait_for_function(code, timeout=1000 * seconds), "the end of the job")
        return self.state

    def cards(self) -> int:
        return self.page.locator(".bl-card").count()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)
