"""Arguments and options that several commands share, and the parsing of their texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cordwood.cli.at.target import AT_VARIABLE
from cordwood.cli.completion import (
    complete_group,
    complete_partition,
    complete_setting,
    complete_topic,
    complete_topic_key,
    completion_of,
)
from cordwood.errors import ConfigError

AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TARGET",
        envvar=AT_VARIABLE,
        help="Data directory (./data) or broker (localhost:9092). Default: ./data.",
    ),
]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, help="Topic name.")
]
TopicsArgument = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", autocompletion=complete_topic, help="Topic names."),
]
PartitionsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        "-p",
        min=0,
        autocompletion=complete_partition,
        help="Only this partition; repeatable.",
    ),
]
GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", autocompletion=complete_group, help="Group name.")
]
GroupsArgument = Annotated[
    list[str],
    typer.Argument(metavar="GROUP", autocompletion=complete_group, help="Group names."),
]
RecordFormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help=r"Output format, for example '%k %v %o\n': %k key, %v value, %o offset, %p partition, "
        r"%t topic, %T time in ms, %I time, %h headers, %K and %S sizes of key and value.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        autocompletion=complete_topic_key,
        help="Set a topic key, for example retention.ms=7d; repeatable.",
    ),
]
ConfigFileOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Configuration file, .toml or .properties. "
        "Default: CORDWOOD_CONFIG, else cordwood.toml.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        autocompletion=complete_setting,
        help="Set any key of `cordwood config show`; repeatable.",
    ),
]


def connection_options(
    *,
    tls: Annotated[
        bool, typer.Option("--tls", envvar="CORDWOOD_TLS", help="Connect with TLS.")
    ] = False,
    ca: Annotated[
        str | None,
        typer.Option(
            "--ca",
            metavar="FILE",
            envvar="CORDWOOD_CA",
            help="Certificate of the authority that signs those of brokers, PEM or PKCS12. "
            "Default: the authorities of the system. Implies --tls.",
        ),
    ] = None,
    cert: Annotated[
        str | None,
        typer.Option(
            "--cert",
            metavar="FILE",
            envvar="CORDWOOD_CERT",
            help="Certificate of this client, PEM or PKCS12. Implies --tls.",
        ),
    ] = None,
    cert_key: Annotated[
        str | None,
        typer.Option(
            "--cert-key",
            metavar="FILE",
            envvar="CORDWOOD_CERT_KEY",
            help="Private key of the certificate. Default: it is in the same file.",
        ),
    ] = None,
    no_verify_host: Annotated[
        bool,
        typer.Option(
            "--no-verify-host",
            help="Accept a certificate that is for another host; its authority is still checked.",
        ),
    ] = False,
    connect_user: Annotated[
        str | None,
        typer.Option(
            "--user",
            "--connect-user",
            metavar="NAME",
            envvar="CORDWOOD_USER",
            help="Authenticate as this user. The password comes from --password-file, "
            "CORDWOOD_PASSWORD or the terminal.",
        ),
    ] = None,
    connect_password_file: Annotated[
        str | None,
        typer.Option(
            "--password-file",
            "--connect-password-file",
            metavar="FILE",
            envvar="CORDWOOD_PASSWORD_FILE",
            help="File with the password of the user.",
        ),
    ] = None,
    connect_mechanism: Annotated[
        str | None,
        typer.Option(
            "--mechanism",
            "--connect-mechanism",
            metavar="NAME",
            envvar="CORDWOOD_MECHANISM",
            autocompletion=completion_of("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"),
            help="SASL mechanism. Default: SCRAM-SHA-256.",
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            envvar="CORDWOOD_TOKEN_FILE",
            help="File with a token; authenticates with OAUTHBEARER.",
        ),
    ] = None,
    command_config: Annotated[
        str | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            envvar="CORDWOOD_COMMAND_CONFIG",
            help="Properties file of a Kafka client, with security.protocol and so on.",
        ),
    ] = None,
    client_properties: Annotated[
        list[str] | None,
        typer.Option(
            "--client-property",
            "-X",
            metavar="KEY=VALUE",
            help="One property of such a file; repeatable.",
        ),
    ] = None,
) -> None:
    """Options of every command that connects to a broker. The command tree adds them.

    Those that a command may have for something else, as `quotas --user`, have a second name.
    """


def parse_pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """``key=value`` texts given to `option`; the same key twice is a `ConfigError`."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(option, text, "must be key=value")
        if key in found:
            raise ConfigError(option, text, f"{key} is given twice")
        found[key] = value
    return found


def parse_config(texts: Sequence[str] | None) -> dict[str, str]:
    """The keys and values of ``--config KEY=VALUE``."""
    return {key: value.strip() for key, value in parse_pairs("--config", texts).items()}
