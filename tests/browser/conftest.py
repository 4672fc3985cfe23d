"""One Chromium, one JupyterLab and one Voila for all browser tests; screenshots go to tests/browser/artifacts."""

import os
import shutil
from pathlib import Path

import pytest
import server
from studio_page import StudioPage

ARTIFACTS = Path(os.environ.get("BREEZE_LAB_ARTIFACTS", Path(__file__).parent / "artifacts"))
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run --use-fake-device-for-media-stream --use-fake-ui-for-media-stream "
    "--autoplay-policy=no-user-gesture-required"
).split()


def chromium() -> str | None:
    named = os.environ.get("BREEZE_LAB_CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser():
    program = chromium()
    if program is None:
        pytest.skip("No Chromium here. Install it: apt-get install chromium, or set BREEZE_LAB_CHROMIUM.")
    for name in ("playwright", "jupyterlab", "voila", "ipywidgets", "anywidget"):
        pytest.importorskip(name, reason=f"{name} is missing. Install it: pip install 'breeze-lab[lab,test]'")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield made
        made.close()


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    return server.make_files(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="session")
def lab_server(files):
    running = server.lab(files)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def voila_server(files):
    running = server.voila(files, "app.ipynb")
    yield running
    running.stop()


@pytest.fixture(scope="session", params=["lab", "voila"])
def studio(request, browser, files):
    """The widget, shown in JupyterLab and then in Voila; one page each for all tests."""
    running = request.getfixturevalue(f"{request.param}_server")
    page = StudioPage(browser, running, request.param, files, ARTIFACTS)
    page.open()
    yield page
    page.shot("last")
    page.close()


@pytest.fixture(autouse=True)
def console_is_clean(request):
    """No test may leave an error in the page's console."""
    yield
    if "studio" in request.fixturenames:
        page = request.getfixturevalue("studio")
        errors, page.errors[:] = list(page.errors), []
        assert not errors, errors
