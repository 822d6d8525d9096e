"""JupyterLab on loopback, and a notebook in it as its user sees it: in a headless Chromium."""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

MISSING = [name for name in ("jupyterlab", "playwright", "ipykernel") if importlib.util.find_spec(name) is None]
if CHROMIUM is None:
    MISSING.append("chromium")

_SECONDS = 120
_SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"autoStartDefaultKernel": True},
}


@contextlib.contextmanager
def running_lab(folder: Path, until: Callable[..., Any], **env: str) -> Iterator[Callable[[str], str]]:
    """Run JupyterLab in a folder, which holds all that it writes; yield a function from a notebook to its address."""
    own = {name: str(folder / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    variables = {f"JUPYTER_{name}_DIR": path for name, path in own.items()}
    settings, state = folder / "settings", folder / "state"
    for name, values in _SETTINGS.items():
        path = settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    variables |= {"JUPYTERLAB_SETTINGS_DIR": str(settings), "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0"]
    with open(folder / "lab.log", "wb") as log:
        process = subprocess.Popen(
            [*command, "--ServerApp.use_redirect_file=False"],
            cwd=folder,
            env={**os.environ, **variables, "IPYTHONDIR": str(state), **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        about = Path(own["RUNTIME"], f"jpserver-{process.pid}.json")
        until(lambda: (about.exists() and about.read_text().endswith("}")) or process.poll() is not None, "JupyterLab")
        assert process.poll() is None, (folder / "lab.log").read_text()
        server = json.loads(about.read_text())
        # In single-document mode, a notebook has the page to itself.
        yield lambda notebook: f"{server['url']}doc/tree/{notebook}?token={server['token']}"
    finally:
        process.terminate()
        process.wait(_SECONDS)


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Run a headless Chromium; yield Playwright's handle on it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def store(path: Path, *cells: str) -> None:
    """Write a notebook that has not run."""
    code = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": cell, "id": f"cell{at}"}
        for at, cell in enumerate(cells)
    ]
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": code, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))


class Notebook:
    """Notebook that a page of the browser shows, with a kernel that has started.

    Attributes:
        page: Playwright's handle on the page.
        cells: that on the cells of code.
    """

    def __init__(self, browser: Any, address: str) -> None:
        self.page = browser.new_page(viewport={"width": 1000, "height": 1600}, color_scheme="light")
        self.page.set_default_timeout(_SECONDS * 1000)
        self.page.goto(address)
        self.cells = self.page.locator(".jp-Notebook .jp-CodeCell")
        # The indicator beside the kernel's name is idle also before there is a kernel.
        self.page.locator("#jp-main-statusbar", has_text=re.compile(r"\| Idle")).wait_for()

    def choose(self, menu: str, item: str) -> None:
        """Choose an item of a menu."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{menu}$")).click()
        self.page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{item}$")).click()

    def run_all(self) -> None:
        """Run all cells."""
        self.choose("Run", "Run All Cells")

    def restart_and_run_all(self) -> None:
        """Restart the kernel and run all cells."""
        self.choose("Kernel", "Restart Kernel and Run All Cells…")
        self.page.locator(".jp-Dialog .jp-mod-accept").click()

    def run(self, cell: int) -> None:
        """Run one cell."""
        self.cells.nth(cell).locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")

    def interrupt(self) -> None:
        """Press the stop button."""
        self.choose("Kernel", "Interrupt Kernel")

    def shows(self, cell: int, text: str) -> str:
        """Wait until the output of a cell matches a pattern, and return the output."""
        self.outputs(cell).filter(has_text=re.compile(text)).first.wait_for()
        return self.output(cell)

    def output(self, cell: int) -> str:
        """Return the text below a cell."""
        return "".join(self.outputs(cell).all_text_contents())

    def outputs(self, cell: int) -> Any:
        """Return Playwright's handle on the outputs of a cell."""
        return self.cells.nth(cell).locator(".jp-OutputArea-output")

    def save(self, picture: Path) -> None:
        """Store what the page looks like down to the last cell's output."""
        last = self.cells.last.bounding_box()
        width = self.page.viewport_size["width"]
        self.page.screenshot(path=picture, clip={"x": 0, "y": 0, "width": width, "height": last["y"] + last["height"]})
