"""The topics in what consumers join with. A client library says what that is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.groups.consumer_subscription import subscribed_topics


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_what_a_client_library_writes_is_read(version: int) -> None:
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

    data = ConsumerProtocolSubscription(
        version=version, topics=["orders", "größe"], user_data=b"anything"
    ).encode(version=version)

    found = subscribed_topics(data)

    assert found == frozenset({"orders", "größe"})


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"\x00\x01", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x7f\xff\xff\xff",
     b"\x00\x00\xff\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x02\xff\xfe"],
)  # fmt: skip
def test_anything_else_is_not_known(data: bytes) -> None:
    assert subscribed_topics(data) is None


def test_a_later_version_begins_the_same() -> None:
    data = b"\x00\x63\x00\x00\x00\x01\x00\x01a" + b"whatever comes then"

    assert subscribed_topics(data) == frozenset({"a"})


@given(st.binary(max_size=64))
def test_nothing_a_client_sends_raises(data: bytes) -> None:
    subscribed_topics(data)
