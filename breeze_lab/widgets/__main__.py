"""The widget as an app of its own: python -m breeze_lab.widgets [--model FOLDER_OR_HUB_ID] [--port 8866]"""

import argparse
import importlib.util
import os
import sys
from pathlib import Path

from ..process import become

APP = Path(__file__).with_name("app.ipynb")
IDLE_S = 120  # a page that was left stops its job, and after this gives its kernel and the model's memory back


def command(port: int, browser: bool) -> list[str]:
    """What serves the app with Voila."""
    line = [
        sys.executable,
        "-m",
        "voila",
        str(APP),
        f"--port={port}",
        f"--MappingKernelManager.cull_idle_timeout={IDLE_S}",
    ]
    line += ["--MappingKernelManager.cull_interval=30"]
    return line if browser else [*line, "--no-browser"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m breeze_lab.widgets", description="Clone voices in the browser.")
    parser.add_argument("--model", help="a folder or a Hub id; Waft by default")
    parser.add_argument("--port", type=int, default=8866)
    parser.add_argument("--no-browser", action="store_true", help="only serve")
    options = parser.parse_args(arguments)
    missing = [name for name in ("voila", "ipywidgets", "anywidget") if importlib.util.find_spec(name) is None]
    if missing:
        parser.error(f'{" and ".join(missing)} missing. In the clone, run: python -m pip install -e ".[lab]"')
    environment = os.environ | ({"BREEZE_LAB_APP_MODEL": options.model} if options.model else {})
    return become(command(options.port, not options.no_browser), environment)


if __name__ == "__main__":
    sys.exit(main())
