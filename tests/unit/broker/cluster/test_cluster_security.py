"""Users, access rules and quotas of a member, from what the controllers keep."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from cordwood.broker.cluster.cluster_security import (
    ClusterSecurity,
    refuse_local_security,
    security_state,
)
from cordwood.cluster.image.access_image import AccessRule, ScramCredential
from cordwood.cluster.image.image_change import ImageChange
from cordwood.cluster.image.metadata_image import NO_METADATA, MetadataImage
from cordwood.errors import ConfigError, CordwoodError, FormatError
from cordwood.security.access.acl_text import rule_text
from cordwood.security.security_file import SecurityFile
from cordwood.security.security_state import (
    QuotaEntity,
    ScramMechanism,
    SecurityState,
    UserCredential,
)
from fakes.sasl_clients import state_of
from fakes.simulated_fs import SimulatedFileSystem

ALLOW, DENY = 3, 2
READ, TOPIC, PREFIXED = 3, 2, 4


def rule(permission: int = ALLOW, operation: int = READ, pattern: int = PREFIXED) -> AccessRule:
    return AccessRule(TOPIC, "ord", pattern, "User:alice", "10.0.0.1", operation, permission)


CREDENTIAL = ScramCredential(salt=b"s", stored_key=b"k", server_key=b"v", iterations=8192)
IMAGE = MetadataImage(
    access_rules={UUID(int=1): rule(), UUID(int=2): rule(DENY), UUID(int=3): rule()},
    quotas={
        (("client-id", None), ("user", "alice")): {"producer_byte_rate": 1000.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
        (("ip", None),): {"connection_creation_rate": 50.0},
        (("team", "x"),): {"producer_byte_rate": 1.0},
    },
    scram_users={("alice", 2): CREDENTIAL, ("alice", 9): CREDENTIAL},
)


def of_image(image: MetadataImage) -> SecurityState:
    return security_state(image, NO_METADATA, SecurityState())


def changed(new: MetadataImage, old: MetadataImage = NO_METADATA) -> ImageChange:
    return ImageChange(old=old, new=new, is_whole=True)


@pytest.fixture
def security() -> Iterator[ClusterSecurity]:
    made = ClusterSecurity(has_authorizer=True)
    yield made
    made.stop()


def settle(security: ClusterSecurity) -> None:
    """Wait until the images that were applied are in force."""
    reached = threading.Event()
    security.when_in_force(reached.set)
    assert reached.wait(60)


def test_rules_of_the_image_are_rules() -> None:
    assert {rule_text(each) for each in of_image(IMAGE).rules} == {
        "ALLOW User:alice READ on TOPIC ord* from 10.0.0.1",
        "DENY User:alice READ on TOPIC ord* from 10.0.0.1",
    }


def test_users_of_mechanisms_that_are_known_can_sign_in() -> None:
    [(user, credential)] = of_image(IMAGE).credentials.items()

    assert user == UserCredential("alice", ScramMechanism.SCRAM_SHA_512)
    assert credential == (b"s", 8192, b"k", b"v")


def test_quotas_are_for_users_clients_and_addresses() -> None:
    assert of_image(IMAGE).quotas == {
        QuotaEntity(user="alice", client_id=""): {"producer_byte_rate": 1000.0},
        QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 5.0},
        QuotaEntity(ip=""): {"connection_creation_rate": 50.0},
    }


def test_what_did_not_change_is_shared_with_the_state_before() -> None:
    before = of_image(IMAGE)
    after = security_state(replace(IMAGE, quotas={}), IMAGE, before)

    assert after.rules is before.rules
    assert after.credentials is before.credentials
    assert not after.quotas


def test_a_rule_that_is_not_understood_allows_nothing_and_is_never_left_out_if_it_may_deny() -> (
    None
):
    assert not of_image(MetadataImage(access_rules={UUID(int=1): rule(operation=99)})).rules
    for unknown in (rule(DENY, operation=99), rule(permission=9), rule(DENY, pattern=77)):
        with pytest.raises(FormatError, match="not understood"):
            of_image(MetadataImage(access_rules={UUID(int=1): unknown}))


def test_listeners_hear_of_the_newest_image_and_of_no_other_kind_of_change(
    security: ClusterSecurity,
) -> None:
    heard: list[SecurityState] = []
    security.when_changed(heard.append)

    security.apply(changed(IMAGE))
    settle(security)
    security.apply(ImageChange(old=IMAGE, new=replace(IMAGE, epoch=5)))
    settle(security)

    assert [len(state.rules) for state in heard] == [0, 2]
    assert security.state is heard[-1]


def test_an_image_that_comes_meanwhile_does_not_keep_clients_outside(
    security: ClusterSecurity,
) -> None:
    entered, go_on, reached = threading.Event(), threading.Event(), threading.Event()

    def slowly(state: SecurityState) -> None:
        if state.rules:
            entered.set()
            assert go_on.wait(60)

    security.when_changed(slowly)
    security.apply(changed(IMAGE))
    security.when_in_force(reached.set)
    assert entered.wait(60)

    security.apply(changed(replace(IMAGE, quotas={}), IMAGE))
    go_on.set()

    assert reached.wait(60)


def test_a_listener_that_fails_is_told_and_clients_stay_outside(security: ClusterSecurity) -> None:
    failed = threading.Event()
    reached: list[int] = []
    security.when_failed = lambda _error: failed.set()

    def fail(state: SecurityState) -> None:
        if state.rules:
            raise LookupError("a bug of ours")

    security.when_changed(fail)
    security.apply(changed(IMAGE))
    security.when_in_force(lambda: reached.append(1))
    assert failed.wait(60)
    security.stop()

    assert not reached


def test_images_that_come_after_the_end_are_ignored(security: ClusterSecurity) -> None:
    security.stop()

    security.apply(changed(IMAGE))

    assert not security.state.rules


def test_a_rule_that_is_not_understood_is_told_and_nothing_is_in_force(
    security: ClusterSecurity,
) -> None:
    failed = threading.Event()
    errors: list[CordwoodError] = []
    reached: list[int] = []

    def note(error: CordwoodError) -> None:
        errors.append(error)
        failed.set()

    security.when_failed = note
    security.apply(changed(MetadataImage(access_rules={UUID(int=1): rule(permission=9)})))
    security.when_in_force(lambda: reached.append(1))
    assert failed.wait(60)
    security.stop()

    assert [type(error) for error in errors] == [FormatError]
    assert not reached
    assert not security.state.rules


def test_it_is_changed_by_the_controllers_alone(security: ClusterSecurity) -> None:
    with pytest.raises(ConfigError, match="controllers"):
        security.change(lambda state: state)


def test_rules_without_an_authorizer_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    security = ClusterSecurity(has_authorizer=False)

    security.apply(changed(IMAGE))
    settle(security)
    security.apply(changed(replace(IMAGE, quotas={}), IMAGE))
    settle(security)
    security.stop()

    assert caplog.text.count("has no authorizer") == 1


def test_a_directory_with_users_of_its_own_is_refused() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory("data")
    file = SecurityFile(fs, ["data"])
    refuse_local_security(file, "data")
    credentials = state_of(("alice", "a")).credentials

    file.change(lambda state: replace(state, credentials=credentials))

    with pytest.raises(ConfigError, match="has users, which are not in force") as refused:
        refuse_local_security(file, "data")
    assert "move the file away" in str(refused.value)
