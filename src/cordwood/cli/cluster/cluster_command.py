"""``cordwood cluster``: all its commands."""

from typing import Final

import typer

from cordwood.cli.cluster.member_commands import drain, elect, remove
from cordwood.cli.cluster.reassign_command import reassign
from cordwood.cli.cluster.rebuild_command import rebuild
from cordwood.cli.cluster.setup_commands import format_broker, join, set_up_controllers
from cordwood.cli.cluster.status_command import status

_HELP: Final = "Set up a cluster, show its state, and move its partitions."

cluster_app = typer.Typer(help=_HELP, no_args_is_help=True)


@cluster_app.callback(help=_HELP)
def cluster() -> None:
    """Only groups the commands."""


for _name, _function in (
    ("status", status),
    ("reassign", reassign),
    ("drain", drain),
    ("elect", elect),
    ("remove", remove),
    ("rebuild", rebuild),
    ("join", join),
    ("format", format_broker),
    ("controllers", set_up_controllers),
):
    cluster_app.command(_name)(_function)
