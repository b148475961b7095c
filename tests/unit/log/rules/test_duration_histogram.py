"""Durations counted in steps."""

import pytest

from cordwood.log.rules.duration_histogram import STEPS_S, DurationHistogram, SharedHistogram


@pytest.mark.parametrize(
    ("duration_s", "step"),
    [(0.0, 0), (STEPS_S[0], 0), (STEPS_S[0] * 1.01, 1), (1.0, STEPS_S.index(1.0)), (1e6, -1)],
)
def test_a_duration_counts_in_the_first_step_that_holds_it(duration_s: float, step: int) -> None:
    histogram = DurationHistogram()

    histogram.observe(duration_s)

    assert histogram.view().counts[step] == 1
    assert histogram.view().count == 1
    assert histogram.view().sum_s == duration_s


def test_histograms_add_up() -> None:
    first, second = DurationHistogram(), SharedHistogram()
    first.observe(0.25)
    second.observe(0.25)
    second.observe(100.0)

    together = first.view() + second.view()

    assert together.count == 3
    assert together.counts[STEPS_S.index(0.25)] == 2
    assert together.counts[-1] == 1
    assert together.sum_s == 100.5


def test_a_view_does_not_change_with_what_comes_after() -> None:
    histogram = DurationHistogram()
    before = histogram.view()

    histogram.observe(1.0)

    assert before.count == 0
