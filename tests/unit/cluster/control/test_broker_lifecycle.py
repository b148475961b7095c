"""The life of a broker among the controllers, as a machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from cordwood.cluster.control.broker_lifecycle import (
    BrokerLifecycle,
    Heard,
    Phase,
    SessionTimes,
)
from cordwood.cluster.control.membership import (
    SUPPORTED_FEATURES,
    UNSUPPORTED_FEATURES,
    Membership,
)
from cordwood.cluster.image.broker_image import Endpoint
from cordwood.cluster.image.metadata_image import NO_METADATA, MetadataImage
from cordwood.errors import ClusterMismatchError, RegistrationRefusedError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_request, encode_request
from cordwood.quantities import Offset

TIMES = SessionTimes(heartbeat_s=2, session_s=9)
DIRECTORIES = (UUID(int=1001), UUID(int=1000))


def lifecycle(**member: Any) -> BrokerLifecycle:
    identity = Membership(
        node_id=7,
        cluster_id="cluster",
        incarnation=UUID(int=5),
        endpoints=(Endpoint("PLAINTEXT", "h", 9092, 0),),
        directories=DIRECTORIES,
        **member,
    )
    return BrokerLifecycle(identity, TIMES)


def registration_answer(code: int = 0, epoch: int = 11) -> Any:
    return SimpleNamespace(error_code=code, broker_epoch=epoch)


def heartbeat_answer(
    code: int = 0, *, fenced: bool = False, caught_up: bool = True, stop: bool = False
) -> Any:
    return SimpleNamespace(
        error_code=code, is_fenced=fenced, is_caught_up=caught_up, should_shut_down=stop
    )


def phase(life: BrokerLifecycle) -> Phase:
    """Asked again each time: the type checker remembers an attribute."""
    return life.phase


def registered(**member: Any) -> BrokerLifecycle:
    life = lifecycle(**member)
    assert life.registered(registration_answer(), NO_METADATA, 0.0) is Heard.GOOD
    return life


def running() -> BrokerLifecycle:
    life = registered()
    life.unfence()
    life.heard(heartbeat_answer(), 0.0)
    assert life.phase is Phase.RUNNING
    return life


def test_a_registration_tells_who_the_broker_is_and_what_it_knows() -> None:
    body = encode_request(
        ApiKey.BROKER_REGISTRATION, 4, lifecycle(previous_epoch=3, rack="r").registration()
    )
    sent: Any = decode_request(ApiKey.BROKER_REGISTRATION, 4, body)

    assert (sent.broker_id, sent.cluster_id, sent.rack) == (7, "cluster", "r")
    assert sent.previous_broker_epoch == 3
    assert sent.log_dirs == (UUID(int=1000), UUID(int=1001))
    assert {each.name for each in sent.features} == set(SUPPORTED_FEATURES)
    assert not {each.name for each in sent.features} & set(UNSUPPORTED_FEATURES)


def test_a_broker_runs_only_after_it_asked_to_and_the_controllers_agreed() -> None:
    life = registered()
    assert phase(life) is Phase.FENCED
    assert life.heartbeat(NO_METADATA)["want_fence"] is True

    life.unfence()
    life.heard(heartbeat_answer(fenced=True), 1.0)
    assert phase(life) is Phase.FENCED
    assert life.heartbeat(NO_METADATA)["want_fence"] is False

    life.heard(heartbeat_answer(), 2.0)
    assert phase(life) is Phase.RUNNING


def test_a_heartbeat_tells_the_last_offset_that_was_applied() -> None:
    image = MetadataImage(end=Offset(90))

    assert registered().heartbeat(image)["current_metadata_offset"] == 89


def test_the_controllers_can_fence_a_broker_that_runs() -> None:
    life = running()

    life.heard(heartbeat_answer(fenced=True), 3.0)

    assert phase(life) is Phase.FENCED


def test_silence_is_counted_from_when_the_last_answered_heartbeat_was_sent() -> None:
    life = running()
    life.heard(heartbeat_answer(), 100.0)

    assert not life.is_fenced_by_silence(109.0)
    assert life.is_fenced_by_silence(109.1)

    life.heard(heartbeat_answer(int(ErrorCode.not_controller)), 110.0)
    assert life.is_fenced_by_silence(110.0)


def test_a_broker_that_never_was_heard_is_fenced() -> None:
    assert lifecycle().is_fenced_by_silence(0.0)


def test_leaving_waits_until_the_controllers_let_it_go() -> None:
    life = running()

    life.leave()
    assert phase(life) is Phase.LEAVING
    assert life.heartbeat(NO_METADATA)["want_shut_down"] is True

    life.heard(heartbeat_answer(), 5.0)
    assert phase(life) is Phase.LEAVING

    life.heard(heartbeat_answer(stop=True), 6.0)
    assert phase(life) is Phase.LEFT


def test_a_broker_that_never_registered_leaves_at_once() -> None:
    life = lifecycle()

    life.leave()

    assert phase(life) is Phase.LEFT


def test_a_broker_that_waits_asks_more_often() -> None:
    life = running()
    assert life.next_pause_s() == TIMES.heartbeat_s

    life.leave()
    assert life.next_pause_s() < TIMES.heartbeat_s / 5

    fenced = registered()
    assert fenced.next_pause_s() == TIMES.heartbeat_s
    fenced.unfence()
    assert fenced.next_pause_s() < TIMES.heartbeat_s / 5


def test_directories_that_failed_stay_failed() -> None:
    life = running()

    life.set_offline([DIRECTORIES[0]])
    life.set_offline([DIRECTORIES[1]])

    assert set(life.heartbeat(NO_METADATA)["offline_log_dirs"]) == set(DIRECTORIES)


@pytest.mark.parametrize(
    "code", [ErrorCode.duplicate_broker_registration, ErrorCode.request_timed_out]
)
def test_a_registration_that_may_succeed_later_is_repeated(code: ErrorCode) -> None:
    life = lifecycle()

    assert life.registered(registration_answer(code), NO_METADATA, 0.0) is Heard.AGAIN
    assert life.epoch == -1


def test_another_cluster_is_refused() -> None:
    answer = registration_answer(ErrorCode.inconsistent_cluster_id)

    with pytest.raises(ClusterMismatchError):
        lifecycle().registered(answer, NO_METADATA, 0.0)


def test_features_that_the_broker_lacks_are_named_with_what_to_do() -> None:
    answer = registration_answer(ErrorCode.unsupported_version)
    image = MetadataImage(
        features={"metadata.version": 30, "share.version": 1, "streams.version": 1}
    )

    with pytest.raises(RegistrationRefusedError) as caught:
        lifecycle().registered(answer, image, 0.0)

    text = str(caught.value)
    assert "share.version=1, streams.version=1" in text
    assert "metadata.version=" not in text
    assert "--feature share.version=0 --feature streams.version=0" in text


def test_a_refusal_waits_for_the_image_that_explains_it() -> None:
    answer = registration_answer(ErrorCode.unsupported_version)

    assert lifecycle().registered(answer, NO_METADATA, 0.0) is Heard.AGAIN


def test_a_newer_metadata_version_asks_for_a_newer_broker() -> None:
    answer = registration_answer(ErrorCode.unsupported_version)

    with pytest.raises(RegistrationRefusedError, match=r"metadata.version=99.*newer version"):
        lifecycle().registered(answer, MetadataImage(features={"metadata.version": 99}), 0.0)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.stale_broker_epoch, "another broker with the same node.id"),
        (ErrorCode.broker_id_not_registered, "was unregistered"),
        (ErrorCode.cluster_authorization_failed, "super.users"),
    ],
)
def test_a_broker_that_is_not_wanted_any_more_stops_and_says_why(
    code: ErrorCode, words: str
) -> None:
    with pytest.raises(RegistrationRefusedError, match=words):
        running().heard(heartbeat_answer(code), 9.0)
