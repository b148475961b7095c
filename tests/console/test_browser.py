"""The console in a real browser: each page, by keyboard and pointer, attacked, in a failure."""

from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, expect

import cordwood
from console.served_console import ServedConsole, served
from cordwood.console.console_config import ConsoleConfig
from fakes.hostile_texts import HOSTILE

PAGES = (
    "/",
    "/topics?internal=1",
    "/topics/orders",
    "/topics/orders?q=paid",
    "/topics/orders/messages/0/17",
    "/topics/orders/segments?in=1d",
    "/topics/accounts/segments?by=time",
    "/topics/orders/segments/0/50",
    "/topics/orders/partitions",
    "/topics/orders/groups",
    "/topics/orders/config?key=retention.ms&value=1h",
    "/topics/empty",
    "/topics/hostile",
    "/groups",
    "/groups/view?name=billing",
    "/upkeep",
    "/transactions",
    "/spark",
    "/settings",
    "/log",
    "/api",
    "/topics/none",
)


def violations(page: Page) -> list[str]:
    """What axe-core finds. Its script is 550 KB, so a page gets it once."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    found = page.evaluate("axe.run({resultTypes: ['violations']}).then(all => all.violations)")
    return [
        f"{violation['id']}: {[node['html'][:200] for node in violation['nodes'][:3]]}"
        for violation in found
    ]


@pytest.mark.parametrize("address", PAGES)
def test_a_page_is_accessible_in_light_and_dark(
    visitor: Page, console: ServedConsole, address: str
) -> None:
    visitor.emulate_media(color_scheme="light", reduced_motion="reduce")
    visitor.goto(console.address + address)
    in_light = violations(visitor)
    visitor.emulate_media(color_scheme="dark", reduced_motion="reduce")
    in_dark = violations(visitor)

    assert (in_light, in_dark) == ([], [])


@pytest.mark.parametrize("address", PAGES)
def test_a_page_fits_a_narrow_screen(visitor: Page, console: ServedConsole, address: str) -> None:
    visitor.set_viewport_size({"width": 360, "height": 740})
    visitor.goto(console.address + address)

    wide = visitor.evaluate("document.scrollingElement.scrollWidth - innerWidth")

    assert wide <= 0


@pytest.mark.parametrize(
    "address",
    [
        "/topics/hostile",
        "/topics/hostile?q=not+zzz",
        "/topics/hostile/segments",
        "/topics/hostile/groups",
        "/groups",
        "/",
        "/log",
        "/topics/hostile/config?key=%3Cscript%3E&value=%3Cscript%3E",
        "/topics/orders?from=key&key=%22%3E%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E",
        "/topics/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/groups?filter=%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E&sort=%22%3E",
        "/login?next=javascript:alert(1)",
    ],
)
def test_hostile_texts_stay_text(visitor: Page, console: ServedConsole, address: str) -> None:
    visitor.goto(console.address + address)
    if "q=" in address:
        expect(visitor.locator("#find-text")).to_contain_text("was searched")

    assert visitor.locator("script:not([src]), img[onerror], svg[onload], main iframe").count() == 0


def test_each_hostile_record_stays_text(page: Page, console: ServedConsole) -> None:
    for offset in range(2 * len(HOSTILE)):
        page.goto(f"{console.address}/topics/hostile/messages/0/{offset}")

        assert page.locator("script:not([src]), img[onerror]").count() == 0


def test_each_hostile_group_has_its_page(page: Page, console: ServedConsole) -> None:
    page.goto(f"{console.address}/groups")
    addresses = page.locator("tbody th a").evaluate_all("links => links.map(a => a.href)")

    for address in addresses:
        answer = page.goto(address)
        assert answer is not None
        assert answer.status == 200


def test_a_search_finds_and_says_so(page: Page, console: ServedConsole) -> None:
    page.goto(f"{console.address}/topics/orders")
    page.get_by_label("Find").fill("value.id = 42")
    page.get_by_role("button", name="Show", exact=True).click()

    expect(page.locator("#find-text")).to_contain_text("2 found")
    expect(page.locator("#find-text")).to_contain_text("Everything was searched")
    expect(page.locator("#messages tbody tr")).to_have_count(2)
    expect(page.locator("#messages")).to_contain_text('"amount": 63.0')


def test_a_search_that_is_wrong_is_explained(page: Page, console: ServedConsole) -> None:
    page.goto(f"{console.address}/topics/orders?q=(paid")

    expect(page.get_by_role("alert")).to_contain_text("an opening bracket has no closing one")


def test_the_arrow_keys_move_over_segments(page: Page, console: ServedConsole) -> None:
    page.goto(f"{console.address}/topics/orders/segments?in=now")
    blocks = page.locator("a.block")
    blocks.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")

    expect(page.locator("#block-details")).to_contain_text("Partition 1: Segment")
    expect(page.locator("#block-details")).to_contain_text("active")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Partition 1, segment 0")).to_be_visible()


def test_a_later_moment_shows_more_that_goes(page: Page, console: ServedConsole) -> None:
    page.goto(f"{console.address}/topics/orders/segments")
    now = page.locator("rect.goes").count()
    page.get_by_role("link", name="in a week").click()

    expect(page.locator(".sentence-small")).to_contain_text("In a week, retention deletes")
    assert page.locator("rect.goes").count() > now > 0


def test_a_segment_is_verified(page: Page, console: ServedConsole) -> None:
    page.goto(f"{console.address}/topics/orders/segments/0/0")
    page.get_by_role("button", name="Verify now").click()

    expect(page.get_by_text("Every checksum, record and index entry is right")).to_be_visible()


def test_the_theme_is_chosen_and_stays(page: Page, console: ServedConsole) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(console.address)
    page.get_by_role("button", name="Change between light and dark").click()
    page.goto(f"{console.address}/topics")

    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_all_of_it_is_reached_by_keyboard(page: Page, console: ServedConsole) -> None:
    page.goto(console.address)
    page.keyboard.press("Tab")

    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_tail_follows_pauses_and_goes_on(page: Page, tmp_path: Path) -> None:
    with cordwood.Broker(tmp_path / "data", topics=["news"], durability="os") as broker:
        topic = broker.store.topic("news")
        config = ConsoleConfig(directories=(broker.data_dir,), port=0, interval_s=0.3)
        with served(config) as console:
            page.goto(f"{console.address}/topics/news")
            page.get_by_role("button", name="Follow live").click()
            expect(page.locator("#tail-text")).to_contain_text("Following")
            topic.append(b"the first news")
            expect(page.locator("#messages")).to_contain_text("the first news")

            page.get_by_role("button", name="Pause").click()
            topic.append_many([(None, b"while paused %d" % n) for n in range(300)])
            page.get_by_role("button", name="Continue").click()

            expect(page.locator("#tail-text")).to_contain_text("left out")
            expect(page.locator("#messages")).to_contain_text("while paused 299")
            page.get_by_role("button", name="Pause").click()


def test_a_page_survives_the_end_of_the_broker(page: Page, tmp_path: Path) -> None:
    broker = cordwood.Broker(tmp_path / "data", topics=["orders"], durability="os")
    with broker:
        config = ConsoleConfig(addresses=(("127.0.0.1", broker.port),), port=0, interval_s=0.3)
        with served(config) as console:
            page.goto(f"{console.address}/topics")
            expect(page.get_by_role("link", name="orders")).to_be_visible()

            broker.kill()
            expect(page.get_by_text("The broker does not answer.")).to_be_visible()
            expect(page.get_by_role("link", name="orders")).to_be_visible()

            broker.start()
            expect(page.get_by_text("The broker does not answer.")).to_be_hidden()


def test_a_page_says_when_the_console_is_gone(browser: Browser, seeded: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    with served(ConsoleConfig(directories=(str(seeded),), port=0, interval_s=0.3)) as console:
        page.goto(f"{console.address}/topics")

    expect(page.get_by_text("The console does not answer.")).to_be_visible()
    context.close()


def test_a_change_asks_for_the_name(page: Page, tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders")
    config = ConsoleConfig(directories=(str(tmp_path / "data"),), port=0, allows_changes=True)
    with served(config) as console:
        page.goto(f"{console.address}/topics/orders/config")
        page.get_by_role("link", name="retention.ms", exact=True).click()
        page.get_by_label("New value").fill("2d")
        page.get_by_role("button", name="What would it do?").click()
        page.get_by_label("To confirm, type the name of the topic").fill("orders")
        page.get_by_role("button", name="Change it").click()

        expect(page.get_by_text("The configuration was changed.")).to_be_visible()
        row = page.get_by_role("row").filter(has_text="retention.ms").first
        expect(row).to_contain_text("172800000")
        assert violations(page) == []
