"""Open, then closing, then closed."""

import pytest

from cordwood.errors import LogClosedError
from cordwood.log.rules.lifetime import Lifetime


def test_it_is_open_until_it_ends() -> None:
    lifetime = Lifetime("the store in /data")

    lifetime.check_open()

    assert not lifetime.is_closing


def test_while_it_closes_it_may_still_be_used() -> None:
    lifetime = Lifetime("the store in /data")

    lifetime.begin_closing()

    lifetime.check_open()
    assert lifetime.is_closing


def test_it_ends_once_and_then_refuses_every_use() -> None:
    lifetime = Lifetime("the store in /data")

    assert lifetime.end()
    assert not lifetime.end()

    assert lifetime.is_closing
    with pytest.raises(LogClosedError, match="the store in /data"):
        lifetime.check_open()
