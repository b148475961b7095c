"""``cordwood snapshot``: copies a store that is in use."""

import os
from typing import Annotated, Final

import typer

from cordwood.cli.at.target import parse_target
from cordwood.cli.options import AtOption, JsonOption
from cordwood.cli.readable_values import shown_bytes
from cordwood.cli.render import Column, output_for

_COLUMNS: Final = (
    "path",
    "partitions",
    Column(name="linked_bytes", show=shown_bytes),
    Column(name="copied_bytes", show=shown_bytes),
)


def snapshot(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="New directory; it must not exist yet.")
    ],
    *,
    include_security: Annotated[
        bool,
        typer.Option(
            "--include-security",
            help="Copy users, access rules and quotas too. Passwords can be guessed from the copy.",
        ),
    ] = False,
    at: AtOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the store, as it is now, to a new directory.

    The copy is a complete store. Writers continue meanwhile. Sealed segments are hard links if
    the file system supports them, so a snapshot takes little time and space. Archived segments
    are not copied. Users, access rules and quotas are not copied either, because passwords can be
    guessed from their file: a broker that is started on the copy has none.

    \b
    Examples:
      cordwood snapshot ./backup
      cordwood snapshot /mnt/backups/monday --at localhost:9092
    """
    from cordwood.cli.at.access import files_of
    from cordwood.cli.at.owner_changes import ask_owner
    from cordwood.errors import ConfigError
    from cordwood.log.inbox.upkeep_change import SnapshotStore

    paths = files_of(parse_target(at)).paths
    target = os.path.abspath(path)
    if os.path.lexists(target):
        raise ConfigError("PATH", path, "already exists; choose a new directory")
    if not os.path.isdir(os.path.dirname(target)):
        raise ConfigError("PATH", path, f"directory {os.path.dirname(target)} does not exist")
    change = SnapshotStore(path=target, include_security=include_security)
    answer = ask_owner(paths, change, label=f"copying to {path}")
    output_for(as_json=as_json).facts(_COLUMNS, answer.facts)
