"""Records, searches and requests that were made to break the console."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

import cordwood
from console.served_console import ServedConsole, served
from cordwood.console.console_config import ConsoleConfig
from wire.waiting import await_true

VALUES = {
    "deep list": b"[" * 200_000,
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "wide object": json.dumps({f"k{n}": n for n in range(20_000)}).encode(),
    "long number": b"[" + b"9" * 100_000 + b"]",
    "exponent": b"[1e999999999]",
    "large": b"x" * 900_000,
    "large JSON": b'{"a": "' + b"y" * 900_000 + b'"}',
    "msgpack lists": b"\x91" * 100_000,
    "msgpack length": b"\xdd\xff\xff\xff\xff",
    "avro": b"Obj\x01" + b"\xff" * 2_000,
    "half UTF-8": b"\xf0\x9f\x98",
    "NUL": b"\0" * 1_000,
    "lone surrogate": b'{"a": "\\ud800"}',
    "terminal": b"\x1b]0;owned\x07\x1b[2J",
}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedConsole]:
    path = tmp_path_factory.mktemp("attacked") / "data"
    with cordwood.open(path, config={"durability": "os"}) as store:
        bombs = store.create_topic("bombs", config={"max.message.bytes": "4MiB"})
        for name, value in VALUES.items():
            bombs.append(
                value, key=name.encode(), headers=[(f"h{n}", value[:99]) for n in range(99)]
            )
        store.create_topic("wide", partitions=1_500).append(b"one", partition=1_499)
    with served(ConsoleConfig(directories=(str(path),), port=0, interval_s=0.5)) as found:
        yield found


def test_a_page_of_bombs_is_shown(attacked: ServedConsole) -> None:
    assert attacked.get("/topics/bombs").status == 200
    for kind in ("json", "text", "msgpack", "avro", "number", "base64", "hex", "no such"):
        assert (
            attacked.get(f"/topics/bombs?value_as={quote(kind)}&key_as={quote(kind)}").status == 200
        )
    assert attacked.get("/topics/bombs/export?from=oldest").text.count("\n") == len(VALUES)
    assert attacked.get("/topics/bombs/export?from=oldest&format=csv").status == 200


@pytest.mark.parametrize("offset", range(len(VALUES)))
def test_each_bomb_has_its_page(attacked: ServedConsole, offset: int) -> None:
    answer = attacked.get(f"/topics/bombs/messages/0/{offset}")

    assert answer.status == 200
    assert len(answer.body) < 2_000_000
    assert attacked.get(f"/api/v1/topics/bombs/messages/0/{offset}").status == 200


@pytest.mark.parametrize(
    "query",
    [
        "/(a{1000}){1000}/",
        "/((((((((.*)*)*)*)*)*)*)*)*x/",
        "/" + "(x?)" * 45 + "x" * 10 + "/",
        "/[^\\x00-\\x{10FFFF}]/",
        "/\\C+/",
        "not " * 100 + "a",
        "(" * 500,
        ")" * 500,
        "a or " * 60 + "a",
        "offset:9223372036854775807",
        "offset:>=9223372036854775808",
        "offset:5..1",
        "offset:" + "9" * 500,
        "size:>999999999999GiB",
        "partition:99999999999999",
        "time:>9999-12-31T23:59:59+00:00",
        "time:<0001-01-01T00:00:00+14:00",
        "value" + ".a" * 400 + " = 1",
        "value.a = " + "9" * 400,
        "value.a = 1e400",
        "value.a ~ \\ud800",
        "value.0.0.0.0 != 1",
        "header.h1:x",
        "header.%s:x" % ("h" * 500),
        'key="" value=""',
        "\x00",
        "\u202e\u2066",
        '"' * 99,
        "/" * 99,
    ],
)
def test_no_search_breaks_the_console(attacked: ServedConsole, query: str) -> None:
    answer = attacked.get(f"/topics/bombs/find?{urlencode({'q': query})}")

    assert answer.status in {200, 400}, answer.text
    assert answer.status == 400 or '"end":' in answer.text, answer.text[-500:]
    assert "fault of the console" not in answer.text
    assert attacked.get(f"/topics/bombs?{urlencode({'q': query})}").status == 200


@pytest.mark.parametrize(
    "address",
    [
        "/topics/wide",
        "/topics/wide?from=oldest",
        "/topics/wide?from=time&time=2000-01-01",
        "/topics/wide?partition=1499",
        "/topics/wide/segments",
        "/topics/wide/segments?page=63",
        "/topics/wide/partitions?page=15",
        "/topics/wide/groups",
        "/topics/wide/config",
        "/topics/wide/find?q=one",
        "/topics/wide/export?from=oldest",
        "/upkeep",
        "/transactions",
        "/",
    ],
)
def test_many_partitions_are_shown(attacked: ServedConsole, address: str) -> None:
    assert attacked.get(address).status == 200


@pytest.mark.parametrize(
    "address",
    [
        "/topics/..%2F..%2Fetc%2Fpasswd",
        "/topics/%2e%2e/export",
        "/topics/..%5c..%5cx/export?from=oldest",
        "/static/..%2fweb_app.py",
        "/static/%2fetc%2fpasswd",
        "/topics/bombs/segments/0/..%2F..",
        "/topics/bombs/messages/0/0%2F..%2F1/value",
        "/groups/view?name=..%2F..%2Fetc",
        "/topics/bombs%00",
        "/" + "a" * 5_000,
        "/topics?page=99999999999999999999",
        "/topics?sort=__class__",
        "/topics?filter=" + "%F0%9F%98%80" * 200,
        "/topics/bombs?partition=1e9",
        "/topics/bombs?partition=٣",
        "/topics/bombs?from=offset&offset=" + "9" * 40,
        "/topics/bombs?from=key&key=0x" + "0" * 3_000,
        "/topics/bombs/tail?positions=x",
        "/topics/bombs/config?key=" + "k" * 5_000 + "&value=" + "v" * 5_000,
        "/topics/bombs/segments?by=x&in=y&page=-1",
        "/topics/bombs/export?count=999999999999&format=exe",
    ],
)
def test_an_address_that_is_not_ours_is_answered_in_words(
    attacked: ServedConsole, address: str
) -> None:
    answer = attacked.get(quote(address, safe="/?&=%:"))

    assert answer.status in {200, 400, 404}, answer.text
    assert "root:" not in answer.text
    assert "default-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "[::1]evil.example",
        "evil.example#127.0.0.1",
        "0x7f000001",
        "2130706433",
        "127.1",
        "",
    ],
)
def test_a_name_that_only_looks_like_ours_is_refused(attacked: ServedConsole, host: str) -> None:
    assert attacked.get("/", Host=host).status in {400, 421}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "https://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_of_another_page_is_refused(
    attacked: ServedConsole, headers: dict[str, str]
) -> None:
    visitor = ServedConsole(attacked.server)
    token = visitor.token("/topics/bombs/segments/0/0")

    assert visitor.post("/topics/bombs/segments/0/0", {"token": token}, **headers).status == 403


def test_a_token_of_another_session_is_refused(attacked: ServedConsole) -> None:
    mine, theirs = ServedConsole(attacked.server), ServedConsole(attacked.server)
    address = "/topics/bombs/segments/0/0"
    mine.token(address)

    assert mine.post(address, {"token": theirs.token(address)}).status == 403


def test_a_deleted_directory_is_told_and_may_come_back(tmp_path: Path) -> None:
    data, away = tmp_path / "data", tmp_path / "away"
    with cordwood.open(data) as store:
        store.create_topic("orders").append(b"one")
    with served(ConsoleConfig(directories=(str(data),), port=0, interval_s=0.3)) as console:
        assert console.get("/topics/orders").status == 200
        data.rename(away)
        for page in ("/", "/topics", "/topics/orders", "/topics/orders/segments", "/upkeep"):
            assert console.get(page).status < 500 or console.get(page).status == 502, page
        await_true(lambda: "All is well" not in console.get("/").text)
        away.rename(data)
        await_true(lambda: "All is well" in console.get("/").text)
        assert console.get("/topics/orders").status == 200
        shutil.rmtree(data)
        await_true(lambda: "All is well" not in console.get("/").text)
        assert console.get("/healthz").status == 200
