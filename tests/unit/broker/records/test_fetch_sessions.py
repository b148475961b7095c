"""Sessions: what a consumer need not say again, and what it is not told again."""

import pytest

from cordwood.broker.records.fetch_sessions import FetchSessions, SessionUse
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.fetch_request import FetchPartition, FetchRequest
from cordwood.protocol.fetch_response import FetchedPart
from fakes.manual_clock import ManualClock

EVICTABLE_AFTER_S = 120


def wanted(partition: int, offset: int = 0) -> FetchPartition:
    return FetchPartition("t", partition, offset, 1000)


def request(
    session_id: int,
    epoch: int,
    *parts: FetchPartition,
    forgotten: tuple[tuple[str, int], ...] = (),
) -> FetchRequest:
    return FetchRequest(-1, 0, 1, 1 << 20, 0, session_id, epoch, list(parts), list(forgotten), "")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(clock: ManualClock) -> FetchSessions:
    return FetchSessions(3, clock.monotonic)


def begin(sessions: FetchSessions, *partitions: int) -> int:
    use = sessions.use(request(0, 0, *map(wanted, partitions)), by_topic_id=False)
    assert use.session_id > 0
    return use.session_id


def go_on(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    *parts: FetchPartition,
    forgotten: tuple[tuple[str, int], ...] = (),
) -> SessionUse:
    return sessions.use(request(session_id, epoch, *parts, forgotten=forgotten), by_topic_id=False)


def answered(
    partition: int, *, size: int = 0, high_watermark: int = 5, error_code: int = 0
) -> FetchedPart:
    return FetchedPart("t", partition, error_code, high_watermark, -1, 0, size=size)


def test_without_a_session_everything_is_asked_and_told(sessions: FetchSessions) -> None:
    use = sessions.use(request(0, -1, wanted(0), wanted(1)), by_topic_id=False)
    parts = [answered(0), answered(1)]

    assert use.session_id == 0
    assert use.parts == [wanted(0), wanted(1)]
    assert use.answer_with(parts) == parts
    assert len(sessions) == 0


def test_a_session_remembers_what_was_asked_and_takes_changes(sessions: FetchSessions) -> None:
    session_id = begin(sessions, 0, 1, 2)

    use = go_on(sessions, session_id, 1, wanted(1, 50), wanted(3), forgotten=(("t", 0),))

    assert use.session_id == session_id
    assert use.parts == [wanted(1, 50), wanted(2), wanted(3)]
    assert go_on(sessions, session_id, 2).parts == use.parts


def test_a_session_tells_only_news(sessions: FetchSessions) -> None:
    session_id = begin(sessions, 0, 1, 2)
    first = go_on(sessions, session_id, 1)
    assert len(first.answer_with([answered(0), answered(1), answered(2)])) == 3

    again = go_on(sessions, session_id, 2)
    told = again.answer_with(
        [answered(0), answered(1, high_watermark=6), answered(2, error_code=3)]
    )

    assert [part.partition for part in told] == [1, 2]
    last = go_on(sessions, session_id, 3)
    assert last.answer_with([answered(0), answered(1, high_watermark=6)]) == []


def test_the_name_of_a_nearer_replica_is_news(sessions: FetchSessions) -> None:
    session_id = begin(sessions, 0, 1)
    go_on(sessions, session_id, 1).answer_with([answered(0), answered(1)])

    sent_away = answered(1)._replace(preferred_replica=2)
    told = go_on(sessions, session_id, 2).answer_with([answered(0), sent_away])

    assert told == [sent_away]


def test_the_first_answer_of_a_session_tells_everything(sessions: FetchSessions) -> None:
    use = sessions.use(request(0, 0, wanted(0)), by_topic_id=False)

    assert use.answer_with([answered(0)]) == [answered(0)]


def test_partitions_with_records_come_last_next_time(sessions: FetchSessions) -> None:
    session_id = begin(sessions, 0, 1, 2)

    use = go_on(sessions, session_id, 1)
    use.answer_with([answered(0, size=10), answered(1), answered(2)])

    order = [part.partition for part in go_on(sessions, session_id, 2).parts]
    assert order == [1, 2, 0]


@pytest.mark.parametrize("epoch", [2, 3, -2, 2**31 - 1])
def test_only_the_next_epoch_is_accepted(sessions: FetchSessions, epoch: int) -> None:
    session_id = begin(sessions, 0)

    use = go_on(sessions, session_id, epoch)

    assert use.error_code == ErrorCode.invalid_fetch_session_epoch
    assert use.session_id == 0
    assert go_on(sessions, session_id, 1).error_code == 0


def test_epochs_start_over_when_there_are_no_more(sessions: FetchSessions) -> None:
    session_id = begin(sessions, 0)
    sessions._sessions[session_id].epoch = 2**31 - 1

    assert go_on(sessions, session_id, 2**31 - 1).error_code == 0
    assert go_on(sessions, session_id, 1).error_code == 0


def test_a_session_that_is_not_there_is_told(sessions: FetchSessions) -> None:
    use = go_on(sessions, 12345, 1)

    assert use.error_code == ErrorCode.fetch_session_id_not_found


def test_names_and_ids_are_not_mixed_in_a_session(sessions: FetchSessions) -> None:
    session_id = begin(sessions, 0)

    use = sessions.use(request(session_id, 1), by_topic_id=True)

    assert use.error_code == ErrorCode.fetch_session_topic_id_error
    assert go_on(sessions, session_id, 1).error_code == 0


def test_saying_everything_again_ends_the_session(sessions: FetchSessions) -> None:
    first, second = begin(sessions, 0), begin(sessions, 0)

    sessions.use(request(first, -1, wanted(0)), by_topic_id=False)
    renewed = sessions.use(request(second, 0, wanted(0)), by_topic_id=False)

    assert len(sessions) == 1
    assert renewed.session_id not in {first, second}


def test_a_session_for_nothing_is_not_begun(sessions: FetchSessions) -> None:
    assert sessions.use(request(0, 0), by_topic_id=False).session_id == 0
    assert len(sessions) == 0


def test_without_room_no_session_is_begun_until_one_was_idle_for_long(
    sessions: FetchSessions, clock: ManualClock
) -> None:
    first, second, third = (begin(sessions, number) for number in range(3))
    clock.advance((EVICTABLE_AFTER_S - 1) * 1000)
    go_on(sessions, first, 1)

    refused = sessions.use(request(0, 0, wanted(9)), by_topic_id=False)
    clock.advance(1000)
    taken = sessions.use(request(0, 0, wanted(9)), by_topic_id=False)

    assert refused.session_id == 0
    assert refused.parts == [wanted(9)]
    assert taken.session_id > 0
    assert go_on(sessions, second, 1).error_code == ErrorCode.fetch_session_id_not_found
    assert go_on(sessions, first, 2).error_code == 0
    assert go_on(sessions, third, 1).error_code == 0


def test_with_no_slots_at_all_there_are_no_sessions(clock: ManualClock) -> None:
    sessions = FetchSessions(0, clock.monotonic)

    assert sessions.use(request(0, 0, wanted(0)), by_topic_id=False).session_id == 0
