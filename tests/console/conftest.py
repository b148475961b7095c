"""Consoles over seeded stores, and a browser to look at them."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, ViewportSize, expect, sync_playwright

from console.seeded_store import seed
from console.served_console import ServedConsole, served
from cordwood.console.console_config import ConsoleConfig

WAIT_MS = 60_000  # the machine may be busy
_WIDE: ViewportSize = {"width": 1280, "height": 900}
_FLAGS = ("--disable-gpu", "--disable-software-rasterizer")  # nobody looks at the pictures
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console") / "data"
    seed(path, int(time.time() * 1000))
    return path


@pytest.fixture(scope="module")
def console(seeded: Path) -> Iterator[ServedConsole]:
    """A read-only console over the seeded store."""
    with served(ConsoleConfig(directories=(str(seeded),), port=0, interval_s=0.3)) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The Chromium of the system; Playwright's own would have to be downloaded."""
    path = os.environ.get("CORDWOOD_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), "")
    if not path:
        pytest.skip("no Chromium on this machine; install it, or set CORDWOOD_CHROMIUM to its path")
    flags = [*_FLAGS, "--no-sandbox"] if os.geteuid() == 0 else list(_FLAGS)
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=flags)
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page whose scripts may not fail, nor be attacked."""
    with _watched_page(browser) as (found, faults):
        yield found
    assert not faults, faults


@pytest.fixture(scope="module")
def _visitor(browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    with _watched_page(browser) as found:
        yield found


@pytest.fixture
def visitor(_visitor: tuple[Page, list[str]]) -> Iterator[Page]:
    """As `page`, for tests that look and change nothing: they share one, which costs a process."""
    found, faults = _visitor
    faults.clear()
    found.emulate_media(color_scheme="light", reduced_motion="no-preference")
    found.set_viewport_size(_WIDE)
    yield found
    assert not faults, faults


@contextmanager
def _watched_page(browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    """A page of its own context, and what it did wrong."""
    context = browser.new_context(viewport=_WIDE, timezone_id="UTC")
    found = context.new_page()
    faults: list[str] = []
    found.on("dialog", lambda dialog: _dismiss(faults, dialog))
    found.on("pageerror", lambda error: faults.append(f"error: {error}"))
    found.on("console", lambda message: _note(faults, message.type, message.text))
    found.on("request", lambda request: _check_is_local(faults, request.url))
    try:
        yield found, faults
    finally:
        context.close()


def _dismiss(faults: list[str], dialog: Dialog) -> None:
    faults.append(f"dialog: {dialog.message}")
    dialog.dismiss()


def _note(faults: list[str], kind: str, text: str) -> None:
    # A page that is missing or refused on purpose is reported by the browser as an error.
    if kind == "error" and "Failed to load resource" not in text:
        faults.append(f"console: {text}")


def _check_is_local(faults: list[str], url: str) -> None:
    if not url.startswith(("http://127.0.0.1:", "blob:")):
        faults.append(f"a request to another server: {url}")
