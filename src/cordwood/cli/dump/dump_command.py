"""``cordwood dump``: prints the contents of log files and checks them."""

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.completion import completion_of
from cordwood.cli.options import JsonOption
from cordwood.cli.terminal import discard_stdout

if TYPE_CHECKING:
    from cordwood.cli.dump.file_kinds import DumpPlan
    from cordwood.cli.dump.lines import DumpOptions

_GROUPS: Final = "groups"
_TRANSACTIONS: Final = "transactions"


def _complete_kind(incomplete: str) -> list[str]:
    from cordwood.cli.dump.file_kinds import KINDS

    return completion_of(*KINDS)(incomplete)


FileArgument = Annotated[
    list[str],
    typer.Argument(metavar="FILE", help="Files of a log; they may be copies."),
]
RecordsOption = Annotated[
    bool,
    typer.Option("--records", "-r", help="Show the records of each batch: offset, time, sizes."),
]
ValuesOption = Annotated[
    bool, typer.Option("--values", "-v", help="Show keys, values and headers of records.")
]
DecodeOption = Annotated[
    str | None,
    typer.Option(
        "--decode",
        metavar="groups|transactions",
        help="Decode the records of __consumer_offsets or of __transaction_state.",
        autocompletion=completion_of(_GROUPS, _TRANSACTIONS),
    ),
]
StartOption = Annotated[
    int,
    typer.Option("--from", metavar="OFFSET", min=0, help="Show nothing before this offset."),
]
CountOption = Annotated[
    int | None,
    typer.Option(
        "-n", "--count", min=1, help="Show at most this many batches, records or entries."
    ),
]
KindOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="KIND",
        help="Kind of the files, if their names do not tell: log, index, timeindex, txnindex, "
        "keyindex, snapshot, checkpoint, epochs, metadata, properties, high-watermark.",
        autocompletion=_complete_kind,
    ),
]


def dump(
    file: FileArgument,
    *,
    records: RecordsOption = False,
    values: ValuesOption = False,
    decode: DecodeOption = None,
    start: StartOption = 0,
    count: CountOption = None,
    kind: KindOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the contents of log files and check them. Exit code 1 if one is damaged.

    Reads segments (.log), their indexes (.index, .timeindex, .txnindex, .keyindex), producer
    snapshots (.snapshot), checkpoints, partition.metadata, meta.properties and high-watermark,
    written by Cordwood or Kafka. Each file is read on its own; nothing is changed. Batches after
    damaged bytes are shown too. A torn end, which an interrupted write leaves, is reported but is
    not damage: the next start repairs it.

    \b
    Examples:
      cordwood dump data/orders-0/00000000000000000000.log
      cordwood dump --values --from 4200 -n 3 data/orders-0/*.log
      cordwood dump --records --decode groups data/__consumer_offsets-*/*.log
      cordwood dump --decode transactions data/__transaction_state-*/*.log
    """
    from cordwood.cli.dump.file_kinds import plan_dump
    from cordwood.cli.dump.lines import DumpOptions
    from cordwood.errors import ConfigError

    if decode not in (None, _GROUPS, _TRANSACTIONS):
        raise ConfigError("--decode", decode, f"must be {_GROUPS} or {_TRANSACTIONS}")
    options = DumpOptions(
        start_offset=start,
        limit=count,
        shows_records=records or values or decode is not None,
        shows_values=values,
        decodes_groups=decode == _GROUPS,
        decodes_transactions=decode == _TRANSACTIONS,
    )
    for path in file:
        os.stat(path)  # a missing file is an error of its own, whatever its name
    plans = [plan_dump(path, kind) for path in file]
    try:
        sound = [_dump_one(plan, options, as_json=as_json) for plan in plans]
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
        return
    if not all(sound):
        raise typer.Exit(1)


def _dump_one(plan: "DumpPlan", options: "DumpOptions", *, as_json: bool) -> bool:
    """Print one file; return whether it is sound."""
    from cordwood.cli.dump.lines import Soundness
    from cordwood.storage.files import RealFileSystem

    write = sys.stdout.write
    if not as_json:
        write(f"{plan.path}  ({plan.kind})\n")
    is_sound = True
    for found in plan.run(RealFileSystem(), options):
        if isinstance(found, Soundness):
            is_sound = not found.is_damaged
        line = found.line() if isinstance(found, Soundness) else found
        if not as_json:
            write(f"{line.text}\n")
        elif line.fields is not None:
            write(json.dumps({"file": plan.path, **line.fields}) + "\n")
    if not as_json:
        write("\n")
    return is_sound
