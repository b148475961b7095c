"""The table of clients in docs/protocol.md: which client is tested for what, by which test.

Versions come from the lock file and from Maven's files. Each cell stands for a test that is named
here; a test that no longer exists is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "dev.txt"
TESTS = ROOT / "tests"
RECORDS = "wire/test_records.py"
STREAMS = (
    "test_streams.py::test_kafka_streams_counts_exactly_once_though_it_and_the_broker_are_killed"
)
CONNECT = (
    "test_connect.py::"
    "test_connect_s_source_sends_each_line_once_though_it_and_the_broker_are_killed"
)
FLINK = (
    "test_flink.py::test_flink_s_sink_writes_each_number_once_though_it_and_the_broker_are_killed"
)

TRIALS = {
    "records": "produce and consume",
    "codecs": "codecs",
    "idempotent": "idempotent producer",
    "positions": "lookup by offset and time",
    "classic": "classic groups",
    "consumer": "KIP-848 groups",
    "admin": "administration",
    "restarts": "broker killed and restarted",
    "transactions": "transactions",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """`trials` maps each trial to its test, as `folder/module.py::name`.

    `says` has the text of cells that need more than "yes".
    """

    name: str
    version: str
    trials: Mapping[str, str]
    says: Mapping[str, str] = field(default_factory=dict)

    def cell(self, trial: str) -> str:
        return self.says.get(trial, "yes" if trial in self.trials else "—")


def client_table() -> str:
    """A column for each client, a row for each trial."""
    tried = clients()
    for client in tried:
        for test in client.trials.values():
            check(test)
    rows = [
        ["", *(client.name for client in tried)],
        ["---"] * (len(tried) + 1),
        ["version", *(client.version for client in tried)],
        *([title, *(client.cell(trial) for client in tried)] for trial, title in TRIALS.items()),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def check(test: str) -> None:
    """Raise `LookupError` if the test of a cell does not exist."""
    path, _, name = test.partition("::")
    module = TESTS / path
    if not module.exists() or f"def {name}(" not in module.read_text(encoding="utf-8"):
        raise LookupError(f"build_support/client_table.py names a missing test: {test}")


def clients() -> list[Client]:
    python = {
        "records": f"{RECORDS}::"
        "test_values_keys_headers_times_and_tombstones_come_as_they_were_sent",
        "codecs": f"{RECORDS}::test_records_of_every_codec_come_as_they_were_sent",
        "idempotent": f"{RECORDS}::test_an_idempotent_producer_is_served",
        "classic": "wire/test_groups.py::"
        "test_members_share_the_partitions_and_take_over_from_those_who_leave",
        "restarts": "wire/test_restarts.py::test_what_was_committed_is_where_one_goes_on",
    }
    created = "test_topics_are_created_described_and_deleted"
    return [
        Client(
            name="confluent-kafka, librdkafka",
            version=locked("confluent-kafka"),
            trials=python
            | {
                "positions": "wire/test_positions.py::test_confluent_kafka_finds_ends_and_times",
                "consumer": "wire/test_consumer_protocol.py::"
                "test_members_share_the_partitions_and_take_over_from_those_who_leave",
                "admin": f"wire/test_admin_confluent.py::{created}",
                "transactions": "wire/test_transactions.py::"
                "test_a_broker_that_is_killed_loses_no_transaction",
            },
            says={"codecs": "all"},
        ),
        Client(
            name="kafka-python",
            version=locked("kafka-python"),
            trials=python
            | {
                "positions": "wire/test_positions.py::test_kafka_python_finds_ends_and_times",
                "admin": f"wire/test_admin_kafka_python.py::{created}",
                "transactions": "wire/test_transactions.py::test_kafka_python_commits_and_aborts",
            },
            says={"codecs": "all; snappy if installed"},
        ),
        Client(
            name="aiokafka",
            version=locked("aiokafka"),
            trials=python
            | {
                "positions": "wire/test_positions.py::test_aiokafka_finds_ends_and_times",
                "admin": f"wire/test_admin_aiokafka.py::{created}",
                "transactions": "wire/test_transactions.py::test_aiokafka_commits_and_aborts",
            },
            says={"codecs": "all"},
        ),
        Client(
            name="kcat",
            version="any",
            trials={"records": f"{RECORDS}::test_kcat_produces_and_consumes"},
            says={"records": "if installed"},
        ),
        Client(
            name="Kafka's Java clients, tools",
            version=from_pom("kafka"),
            trials={
                "records": "interop/test_console_tools.py::"
                "test_keys_headers_and_tombstones_of_the_producer_are_stored_and_come_back",
                "codecs": "interop/test_console_tools.py::"
                "test_what_is_compressed_with_any_codec_is_kept_so_and_read_by_a_pattern_of_topics",
                "idempotent": "interop/test_load_tools.py::"
                "test_the_verifiable_clients_see_each_record_once_and_in_order",
                "positions": "interop/test_topic_tools.py::"
                "test_offsets_are_found_by_place_and_by_time",
                "classic": "interop/test_console_tools.py::test_a_group_goes_on_where_it_stopped",
                "consumer": "interop/test_group_tools.py::"
                "test_members_share_the_partitions_and_hold_the_group",
                "admin": "interop/test_same_as_kafka.py::test_what_is_changed_is_changed_alike",
                "transactions": "interop/test_transactions.py::"
                "test_kafka_s_producer_takes_version_2_and_gets_an_epoch_for_each_transaction",
            },
            says={"codecs": "all", "admin": "yes"},
        ),
        Client(
            name="Spark's Kafka source and sink",
            version=from_pom("spark"),
            trials={
                "records": "interop/test_spark_kafka.py::"
                "test_every_column_of_a_batch_is_what_was_appended",
                "positions": "interop/test_spark_kafka.py::"
                "test_a_batch_may_be_cut_by_offsets_and_by_times",
                "restarts": "interop/test_spark_kafka.py::"
                "test_a_stream_goes_on_from_its_checkpoint_after_a_restart_of_everything",
            },
            says={"restarts": "stopped and started"},
        ),
        Client(
            name="Kafka Streams",
            version=from_pom("streams"),
            trials=dict.fromkeys(
                ("records", "classic", "restarts", "transactions"), f"interop/{STREAMS}"
            ),
            says={"transactions": "exactly_once_v2"},
        ),
        Client(
            name="Kafka Connect",
            version=from_pom("streams"),
            trials=dict.fromkeys(
                ("records", "classic", "restarts", "transactions"), f"interop/{CONNECT}"
            ),
            says={"transactions": "exactly-once sources"},
        ),
        Client(
            name="Flink's sink for Kafka",
            version=from_pom("flink"),
            trials=dict.fromkeys(("records", "restarts", "transactions"), f"interop/{FLINK}"),
            says={"records": "produce", "transactions": "EXACTLY_ONCE, both namings"},
        ),
    ]


def locked(package: str) -> str:
    text = LOCK.read_text(encoding="utf-8")
    found = re.search(rf"^{re.escape(package)}==(\S+)", text, re.MULTILINE)
    if found is None:
        raise LookupError(f"{package} is not in requirements/dev.txt")
    return found[1]


def from_pom(what: str) -> str:
    text = (TESTS / "interop" / what / "pom.xml").read_text(encoding="utf-8")
    found = re.search(rf"<{what}\.version>([^<]+)<", text)
    if found is None:
        raise LookupError(f"tests/interop/{what}/pom.xml has no {what}.version")
    return found[1]
