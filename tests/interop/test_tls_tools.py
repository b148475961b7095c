"""Kafka's console tools over TLS: Java checks our certificate, and we check Java's."""

from __future__ import annotations

from pathlib import Path

import pytest

import cordwood
from fakes.tls_files import TlsFiles
from interop.java_tools import JavaTools
from interop.kafka_peer import KafkaTools


@pytest.mark.parametrize("protocols", ["TLSv1.2", "TLSv1.3"])
def test_java_produces_and_consumes_with_its_certificate(
    kafka: KafkaTools, quick_jvm: tuple[str, ...], tmp_path: Path, protocols: str
) -> None:
    files = TlsFiles(tmp_path)
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SSL\n"
        f"ssl.enabled.protocols={protocols}\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={files.ca}\n"
        "ssl.keystore.type=PEM\n"
        f"ssl.keystore.location={files.client('alice')}\n"
    )
    config = files.listener_config(
        ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/"
    )
    lines = [f"line {number} {'x' * 200}" for number in range(2000)]
    with cordwood.Broker(config=config, topics=["t"]) as broker:
        tools = JavaTools(kafka, broker.bootstrap_servers, jvm_options=quick_jvm)
        tools.run(
            "console-producer", "--topic", "t", "--command-config", str(properties),
            stdin="".join(f"{line}\n" for line in lines),
        )  # fmt: skip
        printed = tools.run(
            "console-consumer", "--topic", "t", "--from-beginning", "--max-messages", "2000",
            "--command-config", str(properties),
        )  # fmt: skip

    assert sorted(printed.lines) == sorted(lines)
