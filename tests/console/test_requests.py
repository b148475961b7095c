"""The console over HTTP, without a browser."""

import csv
import io
import json
import threading
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from console.served_console import ServedConsole, served
from cordwood.console.console_config import ConsoleConfig
from cordwood.console.decoding.masking import Masking
from cordwood.console.pages.open_api import api_path
from cordwood.console.pages.page_list import PAGES
from fakes.hostile_texts import HOSTILE

ADDRESSES = (
    "/",
    "/topics?internal=1",
    "/topics/orders",
    "/topics/orders?from=oldest&partition=1",
    "/topics/orders?from=offset&offset=100",
    "/topics/orders?from=time&time=2020-01-01",
    "/topics/orders?from=key&key=user-3",
    "/topics/orders?q=paid",
    "/topics/orders/messages/0/17",
    "/topics/orders/segments?by=time&in=7d",
    "/topics/orders/segments/0/50",
    "/topics/orders/partitions",
    "/topics/orders/groups",
    "/topics/orders/config?key=retention.ms&value=1h",
    "/topics/accounts/segments",
    "/topics/empty",
    "/topics/empty/segments",
    "/topics/hostile",
    "/topics/__consumer_offsets",
    "/topics/__transaction_state",
    "/groups",
    "/groups/view?name=billing",
    "/upkeep",
    "/transactions",
    "/spark",
    "/settings",
    "/log",
    "/api",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_page_is_served_with_protection(console: ServedConsole, address: str) -> None:
    answer = console.get(address)

    assert answer.status == 200, answer.text
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert "<script>" not in answer.text
    assert "onerror=" not in answer.text.replace("&lt;img src=x onerror=", "")
    assert ' style="' not in answer.text


@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/groups",
        "/topics/hostile",
        "/topics/hostile/groups",
        "/topics/hostile/segments",
        "/topics/hostile/messages/0/20",
        "/log",
    ],
)
def test_characters_that_reorder_or_hide_text_are_shown(
    console: ServedConsole, address: str
) -> None:
    text = console.get(address).text

    assert not {c for c in text if unicodedata.category(c) in {"Cc", "Cf"}} - {"\n", "\t"}


@pytest.mark.parametrize("address", ADDRESSES[:-1])
def test_what_a_page_shows_is_there_as_json(console: ServedConsole, address: str) -> None:
    path = "/api/v1" + ("/overview" if address == "/" else address)

    answer = console.get(path)

    assert answer.status == 200, answer.text
    assert isinstance(answer.json, dict)


def test_openapi_describes_every_page(console: ServedConsole) -> None:
    document = console.get("/api/openapi.json").json

    assert set(document["paths"]) == {api_path(spec) for spec in PAGES}
    assert document["openapi"].startswith("3.")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9480", "localhost.evil.example"])
def test_another_host_is_refused(console: ServedConsole, host: str) -> None:
    assert console.get("/", Host=host).status == 421


def test_a_change_without_rights_is_refused(console: ServedConsole) -> None:
    fields = {"key": "retention.ms", "value": "1h", "confirm": "orders"}
    session = ServedConsole(console.server)
    token = session.token("/topics/orders/segments/0/0")

    assert session.post("/topics/orders/config", {**fields, "token": token}).status == 403
    assert session.post("/topics/orders/config", fields).status == 403
    assert session.post("/groups/delete", {"name": "billing", "token": token}).status == 403


def test_verifying_needs_a_form_of_ours(console: ServedConsole) -> None:
    session = ServedConsole(console.server)
    address = "/topics/orders/segments/0/0"
    token = session.token(address)

    assert session.post(address, {"token": "0" * 64}).status == 403
    assert session.post(address, {"token": token}, Origin="http://evil.example").status == 403
    assert "Every checksum" in session.post(address, {"token": token}).text


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/topics/none", 404),
        ("/topics/orders/messages/0/99999", 404),
        ("/topics/orders/messages/7/0", 404),
        ("/topics/orders/messages/x/0", 400),
        ("/topics/orders?from=offset&offset=-1", 400),
        ("/topics/orders?from=time&time=soon", 400),
        ("/topics/orders?from=key&key=0xzz", 400),
        ("/topics/orders/segments/0/51", 404),
        ("/groups/view?name=none", 404),
        ("/groups/reset?name=billing", 403),
        ("/security", 404),
        ("/nowhere", 404),
        ("/static/../console.py", 404),
        ("/static/console.js?v=x", 200),
    ],
)
def test_what_is_wrong_is_told_with_a_status(
    console: ServedConsole, address: str, status: int
) -> None:
    assert console.get(address).status == status


def test_a_table_is_there_as_csv_without_formulas(console: ServedConsole) -> None:
    answer = console.get("/groups?format=csv")
    rows = list(csv.reader(io.StringIO(answer.text)))

    assert answer.headers["content-disposition"].startswith("attachment")
    assert rows[0][0] == "Group"
    assert {"billing"} <= {row[0] for row in rows[1:]}
    assert not any(cell.startswith(("=", "@")) for row in rows for cell in row)


def test_an_export_has_the_records_that_a_page_begins_to_show(console: ServedConsole) -> None:
    answer = console.get("/topics/orders/export?from=oldest&partition=0&count=120&format=jsonl")
    records = [json.loads(line) for line in answer.text.splitlines()]

    assert [record["offset"] for record in records] == list(range(120))
    assert records[0]["value"] == {"id": 0, "status": "paid", "amount": 0.0}
    assert "attachment" in answer.headers["content-disposition"]


def test_an_export_of_a_search_has_its_hits(console: ServedConsole) -> None:
    answer = console.get("/topics/orders/export?q=value.id+%3D+42&format=csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))

    assert [(row["partition"], row["offset"]) for row in rows] == [("0", "42"), ("1", "42")]


def test_a_value_is_downloaded_as_bytes(console: ServedConsole) -> None:
    answer = console.get("/topics/orders/messages/0/3/value")

    assert answer.headers["content-type"] == "application/octet-stream"
    assert json.loads(answer.body)["id"] == 3


def test_a_search_streams_its_hits_and_its_end(console: ServedConsole) -> None:
    answer = console.get("/topics/orders/find?q=value.id+%3D+42")

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.count("event: hit") == 2
    assert '"end": "done"' in answer.text


def test_hostile_records_cannot_end_an_event(console: ServedConsole) -> None:
    answer = console.get("/topics/hostile/find?q=not+zzz")
    lines = [line for line in answer.text.splitlines() if line]

    assert all(line.startswith(("event: ", "data: ")) for line in lines)
    assert lines.count("event: hit") == 2 * len(HOSTILE)


@pytest.fixture
def masked(seeded: Path) -> Iterator[ServedConsole]:
    masking = Masking.parse(["orders:value.amount", "orders:headers.trace", "accounts:key"])
    config = ConsoleConfig(directories=(str(seeded),), port=0, masking=masking)
    with served(config) as found:
        yield found


def test_masked_parts_leave_by_no_door(masked: ServedConsole) -> None:
    for address in (
        "/topics/orders?from=offset&offset=7",
        "/topics/orders/messages/0/7",
        "/api/v1/topics/orders/messages/0/7",
        "/topics/orders/export?from=oldest&count=20",
        "/topics/orders/find?q=value.id+%3D+7",
    ):
        answer = masked.get(address)
        assert answer.status == 200
        assert "10.5" not in answer.text
        assert "t-7" not in answer.text
    assert masked.get("/topics/orders/messages/0/7/value").status == 403
    assert masked.get("/topics/accounts?from=key&key=a-1").status == 400


def test_a_tail_counts_what_it_leaves_out(tmp_path: Path) -> None:
    with cordwood.Broker(tmp_path / "data", topics=["busy"], durability="os") as broker:
        config = ConsoleConfig(directories=(broker.data_dir,), port=0, interval_s=0.3)
        with served(config) as found:
            broker.store.topic("busy").append(b"first")
            seen: list[str] = []
            has_begun = threading.Event()

            def follow() -> None:
                import http.client

                connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=30)
                connection.request("GET", "/topics/busy/tail")
                answer = connection.getresponse()
                while not any('"dropped"' in line for line in seen):
                    seen.append(answer.readline().decode())
                    has_begun.set()
                connection.close()

            reader = threading.Thread(target=follow)
            reader.start()
            assert has_begun.wait(30)
            broker.store.topic("busy").append_many([(None, b"%d" % n) for n in range(5_000)])
            reader.join(30)

    steps = [json.loads(line[6:]) for line in seen if line.startswith('data: {"rows"')]
    assert steps
    assert sum(step["arrived"] for step in steps) >= len(steps[-1]["rows"])
    assert steps[-1]["dropped"] > 0
    assert len(steps[-1]["rows"]) <= 25


def test_a_snapshot_is_shared_by_all_viewers(console: ServedConsole) -> None:
    first = console.console.keeper.snapshot.sequence
    for _ in range(30):
        assert console.get("/topics").status == 200
    after = console.console.keeper.snapshot.sequence

    assert after - first < 30


def test_topics_that_appear_are_found_at_once(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("one")
        config = ConsoleConfig(directories=(str(tmp_path / "data"),), port=0, interval_s=60)
        with served(config) as found:
            assert found.get("/topics").status == 200
            deadline_s = time.monotonic() + 30
            store.create_topic("two")
            while found.get("/topics/two").status != 200:
                assert time.monotonic() < deadline_s


def test_of_many_partitions_the_plans_of_the_largest_are_shown(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data", config={"durability": "os"}) as store:
        store.create_topic("many", partitions=150)
        large = store.create_topic("zz", partitions=1, config={"segment.records": "10"})
        for _ in range(5):
            large.append_many([(None, b"x")] * 10, partition=0)

    with served(ConsoleConfig(directories=(str(tmp_path / "data"),), port=0)) as console:
        view = console.get("/api/v1/upkeep?sort=-segments").json
        of_topic = console.get("/api/v1/upkeep?topic=many").json

    assert of_topic["planned"] == of_topic["total"] == 150
    assert view["planned"] == 50
    assert view["total"] == 151
    assert view["table"]["rows"][0]["topic"] == "zz"
