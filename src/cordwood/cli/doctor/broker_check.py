"""Checks a broker: whether it answers, how fast, and where its files are."""

import time
from collections.abc import Iterator
from typing import Final

from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, shown_address
from cordwood.cli.doctor.findings import Finding, Verdict
from cordwood.cli.readable_values import counted
from cordwood.errors import (
    AuthenticationFailedError,
    BrokerError,
    BrokerNotTrustedError,
    BrokerUnreachableError,
    CordwoodError,
)
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey

_ASKED: Final = 20
_SLOW_MS: Final = 50.0


class BrokerCheck:
    """Checks a broker. Afterwards `files` are its directories, if they are on this machine."""

    def __init__(self, target: BrokerTarget) -> None:
        self._target = target
        self._area = f"broker {target}"
        self.files: DirectoryTarget | None = None

    def findings(self) -> Iterator[Finding]:
        reached = [self._reach(address) for address in self._target.addresses]
        yield from reached
        if all(found.verdict is Verdict.PROBLEM for found in reached):
            return
        try:
            yield self._cluster()
            yield self._where()
        except CordwoodError as error:
            yield self._found(
                "metadata", str(error), Verdict.PROBLEM, "look at the broker's log output"
            )

    def _reach(self, address: tuple[str, int]) -> Finding:
        from cordwood.remote import api_calls
        from cordwood.remote.wire_connection import Connector

        name = "answers" if len(self._target.addresses) == 1 else shown_address(*address)
        try:
            with Connector(self._target.security)(*address) as connection:
                times_ms: list[float] = []
                for _ in range(_ASKED):
                    begun = time.perf_counter()
                    connection.call(api_calls.METADATA({"topics": []}))
                    times_ms.append((time.perf_counter() - begun) * 1000)
                known = sum(connection.speaks(ApiKey(key)) for key in API_CATALOG)
        except (BrokerNotTrustedError, AuthenticationFailedError) as error:
            return self._found(
                name, str(error), Verdict.PROBLEM, "it is there; connect as its listener requires"
            )
        except BrokerUnreachableError as error:
            return self._found(
                name,
                error.reason,
                Verdict.PROBLEM,
                "check the address, that the broker runs (`cordwood serve`), and the firewall",
            )
        middle = sorted(times_ms)[_ASKED // 2]
        slow = middle > _SLOW_MS
        return self._found(
            name,
            f"in {middle:.1f} ms; supports {known} of Cordwood's {len(API_CATALOG)} APIs",
            Verdict.WARNING if slow else Verdict.OK,
            "slow connection: append records in batches" if slow else "",
        )

    def _cluster(self) -> Finding:
        from cordwood.remote.remote_cluster import RemoteCluster

        with RemoteCluster(self._target.addresses, security=self._target.security) as cluster:
            topics = cluster.describe(None)
            cluster_id = cluster.cluster_id
        leaderless = [
            f"{topic.name}-{number}"
            for topic in topics.values()
            for number, leader in topic.leaders.items()
            if leader < 0
        ]
        value = f"cluster {cluster_id}, {counted(len(topics), 'topic')}"
        if not leaderless:
            return self._found("metadata", value, Verdict.OK, "")
        return self._found(
            "metadata",
            f"{value}; no leader for {', '.join(leaderless[:5])}",
            Verdict.PROBLEM,
            "start the broker that holds them; its log output says what it could not open",
        )

    def _where(self) -> Finding:
        from cordwood.cli.at.access import local_files_of

        try:
            self.files = local_files_of(self._target)
        except BrokerError as error:
            return self._found("files", f"location unknown: {error}", Verdict.NOTE, "")
        if self.files is None:
            return self._found(
                "files",
                "not on this machine",
                Verdict.NOTE,
                "to check them, run `cordwood doctor --at DIR` on the broker's machine",
            )
        return self._found("files", f"{self.files}, on this machine", Verdict.OK, "")

    def _found(self, name: str, value: str, verdict: Verdict, advice: str) -> Finding:
        return Finding(area=self._area, name=name, value=value, verdict=verdict, advice=advice)
