"""``cordwood snapshot``: a copy of a store while it goes on."""

import os
from typing import Annotated, Final

import typer

from cordwood.cli.at.target import AtOption, parse_target
from cordwood.cli.readable_values import shown_bytes
from cordwood.cli.render import Column, output_for

_COLUMNS: Final = (
    "path",
    "partitions",
    Column(name="linked_bytes", show=shown_bytes),
    Column(name="copied_bytes", show=shown_bytes),
)


def snapshot(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A directory that is not there yet.")],
    *,
    at: AtOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Copy the store, as it is now, to a new directory that is a store of its own.

    Whoever writes goes on meanwhile. Sealed segments are shared with the copy where the file
    system can do that, so it takes little time and room. The archive is not part of it.

    \b
    Examples:
      cordwood snapshot ./backup
      cordwood snapshot /mnt/backups/monday --at localhost:9092
    """
    from cordwood.cli.at.local_files import files_of
    from cordwood.cli.at.owner_changes import ask_owner
    from cordwood.errors import ConfigError
    from cordwood.log.inbox.upkeep_change import SnapshotStore

    paths = files_of(parse_target(at)).paths
    target = os.path.abspath(path)
    if os.path.lexists(target):
        raise ConfigError("PATH", path, "is there already: give a directory that is not")
    if not os.path.isdir(os.path.dirname(target)):
        raise ConfigError("PATH", path, f"there is no directory {os.path.dirname(target)}")
    answer = ask_owner(paths, SnapshotStore(path=target), label=f"copying to {path}")
    output_for(as_json=as_json).facts(_COLUMNS, answer.facts)
