from uuid import UUID

import pytest

from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.format.small_files.meta_properties import (
    MetaProperties,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_properties,
    render_clean_shutdown,
    render_meta_properties,
    render_properties,
)
from cordwood.quantities import TimestampMs

DIRECTORY_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
WRITTEN = TimestampMs(1_763_237_700_000)


def test_version_1_is_written_as_java_writes_it() -> None:
    meta = MetaProperties(cluster_id="4L6g3nShT-eMCtK--X86sw", node_id=1, directory_id=DIRECTORY_ID)

    text = render_meta_properties(meta, written_ms=WRITTEN)

    assert text == (
        "#\n"
        "#Sat Nov 15 20:15:00 UTC 2025\n"
        "node.id=1\n"
        "version=1\n"
        "directory.id=ABEiM0RVZneImaq7zN3u_w\n"
        "cluster.id=4L6g3nShT-eMCtK--X86sw\n"
    )
    assert parse_meta_properties(text) == meta


@pytest.mark.parametrize(
    "meta",
    [
        MetaProperties(version=0),
        MetaProperties(version=0, node_id=3),
        MetaProperties(version=0, cluster_id="c", node_id=3, directory_id=DIRECTORY_ID),
    ],
)
def test_version_0_calls_the_node_a_broker_and_needs_nothing(meta: MetaProperties) -> None:
    text = render_meta_properties(meta, written_ms=WRITTEN)

    assert "node.id" not in text
    assert parse_meta_properties(text) == meta


def test_no_version_means_0() -> None:
    assert parse_meta_properties("broker.id=7\n") == MetaProperties(version=0, node_id=7)


def test_unknown_keys_are_ignored() -> None:
    meta = parse_meta_properties("version=1\ncluster.id=c\nnode.id=1\nrack=a\nbroker.id=9\n")

    assert meta == MetaProperties(cluster_id="c", node_id=1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\ncluster.id=c\n", "node.id is missing"),
        ("version=1\ncluster.id=c\nbroker.id=1\n", "node.id is missing"),
        ("version=one\n", "version = 'one' is not an int32"),
        ("version=\n", "version = '' is not an int32"),
        ("version=1\ncluster.id=c\nnode.id=2147483648\n", "node.id = '2147483648'"),
        ("version=1\ncluster.id=c\nnode.id=1 \n", "node.id = '1 '"),
        ("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=x\n", "directory.id: 'x'"),
    ],
)
def test_what_is_missing_or_malformed_is_named(text: str, reason: str) -> None:
    with pytest.raises(FormatError) as raised:
        parse_meta_properties(text)

    assert raised.value.reason.startswith(reason)


@pytest.mark.parametrize("version", ["2", "-1"])
def test_another_version_is_unsupported(version: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=r"meta\.properties version"):
        parse_meta_properties(f"version={version}\n")


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("\n\n  \n", {}),
        ("# a=b\n ! c=d\\\ne=f\n", {"e": "f"}),
        ("a=b", {"a": "b"}),
        ("a=b\r\nc=d\re=f\n", {"a": "b", "c": "d", "e": "f"}),
        ("a:b\nc d\n  e  =  f \n", {"a": "b", "c": "d", "e": "f "}),
        ("a\nb=\n=c\n", {"a": "", "b": "", "": "c"}),
        ("a==b\nc = :d\n", {"a": "=b", "c": ":d"}),
        ("a\\ b\\=c=d\\:e", {"a b=c": "d:e"}),
        ("a=b\\\n    c\\\r\n d\n", {"a": "bcd"}),
        ("a=b\\\\\nc=d\n", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e9\\uD83D\\uDE00", {"a": "é😀"}),
        ("a=é", {"a": "é"}),
        ("a=1\na=2\n", {"a": "2"}),
        ("\\\n# a comment\n\\\n\nc=d", {"c": "d"}),
        ("a=b\\\n# not a comment\n", {"a": "b# not a comment"}),
    ],
)
def test_java_properties_are_read_as_java_reads_them(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize("text", ["a=\\u", "a=\\u12", "a=\\u12g4", "\\u=b"])
def test_an_escape_without_four_digits_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match=r"at byte 4: .*four hexadecimal digits"):
        parse_properties("x=y\n" + text)


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(FormatError, match="surrogate"):
        parse_properties("a=\\uD83D")


def test_properties_are_written_in_ascii() -> None:
    text = render_properties({"a b=": "  é😀\t#x y", "c": "\\"})

    assert text == "a\\ b\\==\\ \\ \\u00E9\\uD83D\\uDE00\\t\\#x y\nc=\\\\\n"
    assert parse_properties(text) == {"a b=": "  é😀\t#x y", "c": "\\"}


def test_the_clean_shutdown_marker_is_json() -> None:
    text = render_clean_shutdown(5)

    assert text == '{"version":0,"brokerEpoch":5}'
    assert parse_clean_shutdown(text) == 5


@pytest.mark.parametrize(
    "text", ['{"brokerEpoch": -1}', '{"more": {"x": [1]}, "version": 9, "brokerEpoch": -1}\n']
)
def test_unknown_keys_in_the_marker_are_ignored(text: str) -> None:
    assert parse_clean_shutdown(text) == -1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "5",
        "[]",
        "{}",
        '{"version": 0}',
        '{"brokerEpoch": null}',
        '{"brokerEpoch": true}',
        '{"brokerEpoch": "5"}',
        '{"brokerEpoch": 5.0}',
        '{"brokerEpoch": NaN}',
        '{"brokerEpoch": 9223372036854775808}',
        '{"brokerEpoch": ' + "9" * 5000 + "}",
        "[" * 60_000,
        '{"a":' * 12_000,
        " " * 100_000,
    ],
    ids=lambda text: text[:24],
)
def test_anything_else_is_no_marker(text: str) -> None:
    with pytest.raises(FormatError):
        parse_clean_shutdown(text)
