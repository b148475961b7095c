"""Metrics of clients as OTLP bytes: what is decoded, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.broker.telemetry.otlp_metrics import POINTS_MAX, Point, decode_metrics
from cordwood.errors import FormatError
from fakes.otlp_bytes import attribute, double_point, int_point, metric, metrics_data, varint


def test_gauges_and_sums_are_decoded_with_their_attributes() -> None:
    cumulative = varint(2 << 3) + varint(2) + varint(3 << 3) + varint(1)
    delta = varint(2 << 3) + varint(1) + varint(3 << 3) + varint(1)
    data = metrics_data(
        metric("a.gauge", 5, double_point(1.5, attribute("topic", "t"), attribute("node", -7))),
        metric("a.total", 7, int_point(-3) + cumulative),
        metric("a.delta", 7, int_point(3) + delta),
        metric("a.histogram", 9, b""),
    )

    decoded = decode_metrics(data)

    assert decoded.points == [
        Point(name="a.gauge", attributes=(("node", "-7"), ("topic", "t")), value=1.5),
        Point(name="a.total", attributes=(), value=-3.0, is_counter=True),
        Point(name="a.delta", attributes=(), value=3.0, is_counter=True, is_delta=True),
    ]
    assert decoded.left_out == 1


def test_points_beyond_the_limit_are_counted_and_names_are_cut() -> None:
    many = metric("x" * 10_000, 5, int_point(1) * (POINTS_MAX + 5))

    decoded = decode_metrics(metrics_data(many))

    assert len(decoded.points) == POINTS_MAX
    assert decoded.left_out == 5
    assert len(decoded.points[0].name) == 256


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a\xff\xff\xff\xff\x0f", "are left"),
        (b"\x0a", "does not end"),
        (b"\xff" * 11, "does not end"),
        (b"\x0b", "wire type 3"),
    ],
)
def test_other_bytes_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode_metrics(data)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_decoded(data: bytes) -> None:
    try:
        decode_metrics(data)
    except FormatError:
        return


@given(st.binary(max_size=64), st.integers(0, 200))
def test_a_damaged_push_is_refused_or_decoded(noise: bytes, position: int) -> None:
    sound = metrics_data(metric("a.gauge", 5, double_point(1.5, attribute("topic", "t")) * 3))
    try:
        decode_metrics(sound[:position] + noise + sound[position + len(noise) :])
    except FormatError:
        return
