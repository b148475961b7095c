"""A broker by its address: whether it answers, how soon, and what it is."""

import time
from collections.abc import Iterator
from typing import Final

from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, shown_address
from cordwood.cli.doctor.health_finding import Finding, Verdict
from cordwood.errors import BrokerError, BrokerUnreachableError, CordwoodError
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey

_ASKED: Final = 20
_SLOW_MS: Final = 50.0


class BrokerCheck:
    """Looks at a broker. `files` are its directories afterwards, where they are on this machine."""

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
                "metadata", str(error), Verdict.PROBLEM, "look into the log of the broker"
            )

    def _reach(self, address: tuple[str, int]) -> Finding:
        from cordwood.remote import api_calls
        from cordwood.remote.wire_connection import WireConnection

        name = "answers" if len(self._target.addresses) == 1 else shown_address(*address)
        try:
            with WireConnection(*address) as connection:
                times_ms: list[float] = []
                for _ in range(_ASKED):
                    begun = time.perf_counter()
                    connection.call(api_calls.METADATA({"topics": []}))
                    times_ms.append((time.perf_counter() - begun) * 1000)
                known = sum(connection.speaks(ApiKey(key)) for key in API_CATALOG)
        except BrokerUnreachableError as error:
            return self._found(
                name,
                error.reason,
                Verdict.PROBLEM,
                "is it started (`cordwood serve`), is the address right, is a firewall between?",
            )
        middle = sorted(times_ms)[_ASKED // 2]
        slow = middle > _SLOW_MS
        return self._found(
            name,
            f"in {middle:.1f} ms, and speaks {known} of the {len(API_CATALOG)} APIs Cordwood has",
            Verdict.WARNING if slow else Verdict.OK,
            "a long way to it: batch what you append" if slow else "",
        )

    def _cluster(self) -> Finding:
        from cordwood.remote.remote_cluster import RemoteCluster

        with RemoteCluster(self._target.addresses) as cluster:
            topics = cluster.describe(None)
            cluster_id = cluster.cluster_id
        leaderless = [
            f"{topic.name}-{number}"
            for topic in topics.values()
            for number, leader in topic.leaders.items()
            if leader < 0
        ]
        value = f"cluster {cluster_id}, {len(topics)} topics"
        if not leaderless:
            return self._found("metadata", value, Verdict.OK, "")
        return self._found(
            "metadata",
            f"{value}; nobody serves {', '.join(leaderless[:5])}",
            Verdict.PROBLEM,
            "start the broker that has them; its log says what it could not open",
        )

    def _where(self) -> Finding:
        from cordwood.cli.at.local_files import local_files_of

        try:
            self.files = local_files_of(self._target)
        except BrokerError as error:
            return self._found("files", f"it does not tell where: {error}", Verdict.NOTE, "")
        if self.files is None:
            return self._found(
                "files",
                "not on this machine",
                Verdict.NOTE,
                "run `cordwood doctor --at DIR` where they are, to have them looked at",
            )
        return self._found("files", f"{self.files}, on this machine", Verdict.OK, "")

    def _found(self, name: str, value: str, verdict: Verdict, advice: str) -> Finding:
        return Finding(area=self._area, name=name, value=value, verdict=verdict, advice=advice)
