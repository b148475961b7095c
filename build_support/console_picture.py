"""Draw docs/images/console-segments.gif: the page of segments while a log grows and is cut.

``python build_support/console_picture.py``        writes the picture
``python build_support/console_picture.py FILE``   writes it elsewhere

The pictures are those of the real page, in Chromium, over a real store: records are appended, a
group reads them, and retention deletes what is too much. Needs the packages of requirements/dev.txt
and Chromium (or its path in CORDWOOD_CHROMIUM).
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import FloatRect, Page, sync_playwright

import cordwood
from cordwood.console.console_config import ConsoleConfig
from cordwood.console.console_server import ConsoleServer
from cordwood.format.record import Record
from cordwood.log.store.store import Store

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "images" / "console-segments.gif"
TOPIC: Final = "orders"
PARTITIONS: Final = 3
FRAMES: Final = 36
FRAME_MS: Final = 350
LAST_MS: Final = 2_000
COLOURS: Final = 64
WIDTH: Final = 1180
MARGIN: Final = 12
GAP: Final = 3  # to the line above, which is not part of the picture
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_START_S: Final = 60.0


@contextmanager
def served_console(directory: str) -> Iterator[ConsoleServer]:
    # The script asks for each look, so that the page does not change while a picture is taken.
    server = ConsoleServer(ConsoleConfig(directories=(directory,), port=0, interval_s=60.0))
    has_started = threading.Event()
    thread = threading.Thread(target=server.run, kwargs={"on_start": lambda _: has_started.set()})
    thread.start()
    try:
        if not has_started.wait(_START_S):
            raise SystemExit("the console did not start")
        yield server
    finally:
        server.stop()
        thread.join(_START_S)


class GrowingTopic:
    """Appends to a topic, reads it as a group, and applies retention, a step at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._chance = random.Random(7)  # the same picture each time
        self._ends = [0] * PARTITIONS
        self._read = [0] * PARTITIONS
        config = {"segment.records": "60", "retention.bytes": "40KiB", "retention.ms": "-1"}
        self._topic = store.create_topic(TOPIC, partitions=PARTITIONS, config=config)

    def step(self, number: int) -> None:
        for partition in range(PARTITIONS):
            count = self._chance.choice((10, 20, 30)) + 10 * partition
            for _ in range(count // 10):
                self._topic.append_many([self._record() for _ in range(10)], partition=partition)
            self._ends[partition] += count
            behind = self._ends[partition] - self._read[partition]
            self._read[partition] += int(behind * self._chance.choice((0, 0.3, 0.8)))
        group = self._store.group("billing")
        group.commit({(TOPIC, n): offset for n, offset in enumerate(self._read)})
        if number % 6 == 5:
            self._store.maintain()

    def _record(self) -> Record:
        value = {"id": self._chance.randrange(10**6), "note": "x" * self._chance.randrange(30, 90)}
        return Record(key=b"customer", value=json.dumps(value).encode())


def frames(page: Page, server: ConsoleServer, topic: GrowingTopic) -> Iterator[Image.Image]:
    console = server._console
    assert console is not None
    for number in range(FRAMES):
        topic.step(number)
        console.keeper.take_now(after_change=True)
        page.goto(f"{server.address}/topics/{TOPIC}/segments?in=now")
        taken = page.screenshot(clip=picture_place(page))
        yield Image.open(io.BytesIO(taken)).convert("RGB")


def picture_place(page: Page) -> FloatRect:
    """From the sentence above the lanes to the last lane, on whole pixels."""
    sentence = page.locator(".sentence-small").bounding_box()
    lanes = page.locator("#picture").bounding_box()
    assert sentence is not None
    assert lanes is not None
    top = int(sentence["y"]) - GAP
    return {
        "x": int(lanes["x"]) - MARGIN,
        "y": top,
        "width": int(lanes["width"]) + 2 * MARGIN,
        "height": int(lanes["y"] + lanes["height"]) - top + MARGIN,
    }


def write_animation(pictures: list[Image.Image], path: Path) -> None:
    """One palette for all frames, so that what does not change takes no room."""
    width, height = pictures[0].size
    sample = Image.new("RGB", (width, height * 2))
    sample.paste(pictures[0], (0, 0))
    sample.paste(pictures[-2], (0, height))  # with segments that retention is about to delete
    palette = sample.quantize(COLOURS)
    drawn = [p.quantize(palette=palette, dither=Image.Dither.NONE) for p in pictures]
    times = [FRAME_MS] * (len(drawn) - 1) + [LAST_MS]
    drawn[0].save(path, save_all=True, append_images=drawn[1:], duration=times, loop=0)


@contextmanager
def browser_page(width: int, height: int) -> Iterator[Page]:
    """An empty page of the system's Chromium, light and without motion."""
    browser_path = os.environ.get("CORDWOOD_CHROMIUM") or next(
        filter(None, map(shutil.which, _NAMES)), None
    )
    if browser_path is None:
        raise SystemExit("no Chromium found; install it, or set CORDWOOD_CHROMIUM to its path")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=flags)
        page = browser.new_page(viewport={"width": width, "height": height})
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        yield page
        browser.close()


def main(path: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        cordwood.open(directory, config={"durability": "os"}) as store,
        browser_page(WIDTH, 900) as page,
    ):
        topic = GrowingTopic(store)
        with served_console(directory) as server:
            write_animation(list(frames(page, server, topic)), path)
    sys.stdout.write(f"{path}: {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
