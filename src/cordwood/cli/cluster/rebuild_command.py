"""``cordwood cluster rebuild``: fetches a replica again from its leader."""

import re
import time
from contextlib import suppress
from typing import Annotated, Final

import typer

from cordwood.cli.at.cluster_access import ClusterAccess, open_cluster
from cordwood.cli.cluster.moves import TimeoutOption
from cordwood.cli.options import AtOption, JsonOption, YesOption
from cordwood.cli.render import output_for, progress_bar
from cordwood.cli.terminal import require_confirmation, say
from cordwood.cluster.operating.cluster_picture import PartitionPicture, Place
from cordwood.errors import BrokerError, ConfigError, LogError, UnknownPartitionError

_LOOK_S: Final = 0.2
_PLACE: Final = re.compile(r"(.+)[-:](\d{1,10})")
_LOG_DIR_NOT_FOUND: Final = 57
_REFUSALS: Final = {
    5: "the partition has no leader to copy from",
    9: "the broker has no replica of it",
    31: "the user may not change the cluster",
    56: "its disk refuses a second directory; the log of the broker says why",
    39: "the broker leads the partition; let another one lead first: cordwood cluster reassign",
    _LOG_DIR_NOT_FOUND: "the broker is Kafka's, which cannot do it: stop it, delete the directory "
    "of the replica, and start it again",
}


def rebuild(
    partition: Annotated[
        str, typer.Argument(metavar="TOPIC-PARTITION", help="The partition, such as orders-0.")
    ],
    broker: Annotated[
        int, typer.Option("--broker", metavar="NODE", min=0, help="The broker with the replica.")
    ],
    *,
    at: AtOption = None,
    yes: YesOption = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when the new replica is in place and in sync.")
    ] = False,
    timeout_s: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a replica of a Cordwood broker again from its leader, beside its old files.

    For a replica that `cordwood verify` finds damaged, or that stopped because its leader has
    other records; `cordwood_stopped_replicas` counts those and the log of the broker says why. A
    replica that is damaged when its broker starts is fetched again by itself. The old files stay
    until the new ones are complete. What only this replica has is lost then.

    \b
    Examples:
      cordwood cluster rebuild orders-0 --broker 2
      cordwood cluster rebuild orders-0 --broker 2 --wait --yes --at localhost:9092
    """
    place = _place(partition)
    with open_cluster(at) as access:
        found = _described(access, place)
        if not access.operations.has_controllers:
            raise LogError("the broker is alone: there is no other replica to copy from")
        if broker not in found.replicas:
            held = ", ".join(map(str, found.replicas))
            raise ConfigError("--broker", broker, f"has no replica of {place}; {held} have one")
        require_confirmation(
            f"Replace the replica of {place} on broker {broker} by a copy of broker "
            f"{found.leader}'s? Records that only broker {broker} has are lost.",
            is_given=yes,
        )
        code = access.operations.rebuild(broker, *place)
        if code:
            reason = _REFUSALS.get(code, f"error {code}")
            raise LogError(f"{place} on broker {broker} is not rebuilt: {reason}")
        if wait:
            _await(access, place, broker, timeout_s)
    if as_json:
        state = "in sync" if wait else "begun"
        row = {"topic": place.topic, "partition": place.partition, "broker": broker, "state": state}
        output_for(as_json=True).facts((), row)
    elif wait:
        say(f"the replica of {place} on broker {broker} is in place and in sync")
    else:
        say("begun; the log of the broker says when it is done")


def _place(text: str) -> Place:
    found = _PLACE.fullmatch(text)
    if found is None:
        raise ConfigError("TOPIC-PARTITION", text, "must be a topic and a partition, as orders-0")
    return Place(found[1], int(found[2]))


def _described(access: ClusterAccess, place: Place) -> PartitionPicture:
    partitions = {each.place: each for each in access.partitions([place.topic])}
    if place not in partitions:
        raise UnknownPartitionError(*place, count=len(partitions))
    return partitions[place]


def _await(access: ClusterAccess, place: Place, broker: int, timeout_s: float | None) -> None:
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    shown = 0
    with progress_bar(str(place), total=None) as advance:
        while True:
            try:
                future = [
                    each
                    for each in access.operations.replicas([broker], [place.topic])
                    if each.is_future and each.partition == place.partition
                ]
                is_in_sync = broker in _described(access, place).in_sync
            except BrokerError:
                with suppress(BrokerError):  # it is tried again
                    access.reconnect()
            else:
                if not future and is_in_sync:
                    return
                if future and future[0].size_bytes > shown:
                    advance(future[0].size_bytes - shown)
                    shown = future[0].size_bytes
            if deadline_s is not None and time.monotonic() >= deadline_s:
                raise LogError(
                    f"{place} on broker {broker} is not in sync after {timeout_s:g} s; the log of "
                    "the broker says what it does"
                )
            time.sleep(_LOOK_S)
