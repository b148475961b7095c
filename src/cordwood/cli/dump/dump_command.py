"""``cordwood dump``: what is in the files of a log, and how far they are sound."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.closed_output import let_go_of_stdout
from cordwood.cli.completion_names import completion_of

if TYPE_CHECKING:
    from cordwood.cli.dump.dump_kinds import DumpPlan
    from cordwood.cli.dump.dump_lines import DumpOptions

_GROUPS: Final = "groups"


def _complete_kind(incomplete: str) -> list[str]:
    from cordwood.cli.dump.dump_kinds import KINDS

    return completion_of(*KINDS)(incomplete)


def dump(
    file: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Files of a log, wherever they were copied to."),
    ],
    *,
    records: Annotated[
        bool, typer.Option("--records", "-r", help="The records of each batch too, by size.")
    ] = False,
    values: Annotated[
        bool, typer.Option("--values", "-v", help="Their keys, values and headers as well.")
    ] = False,
    decode: Annotated[
        str | None,
        typer.Option(
            "--decode",
            metavar="groups",
            help="Tell what the records of __consumer_offsets say.",
            autocompletion=completion_of(_GROUPS),
        ),
    ] = None,
    start: Annotated[
        int, typer.Option("--from", metavar="OFFSET", min=0, help="Show nothing before it.")
    ] = 0,
    count: Annotated[
        int | None,
        typer.Option(
            "-n", "--count", min=1, help="Show so many batches, records or entries of a file."
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="KIND",
            help="What a file is where its name does not say it: log, index, timeindex, txnindex, "
            "keyindex, snapshot, checkpoint, epochs, metadata, properties, high-watermark.",
            autocompletion=_complete_kind,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Show what is in the files of a log, and how far each is sound. Exit code 1 for damage.

    Segments (.log), their indexes (.index, .timeindex, .txnindex, .keyindex), producer snapshots
    (.snapshot), checkpoints, partition.metadata, meta.properties and high-watermark; ours and
    Kafka's. Each file is read by itself, and nothing is changed. Batches behind damage are shown
    too. A torn end, which an interrupted write leaves and a start repairs, is told, and is no
    damage.

    \b
    Examples:
      cordwood dump data/orders-0/00000000000000000000.log
      cordwood dump --values --from 4200 -n 3 data/orders-0/*.log
      cordwood dump --records --decode groups data/__consumer_offsets-*/*.log
    """
    from cordwood.cli.dump.dump_kinds import plan_dump
    from cordwood.cli.dump.dump_lines import DumpOptions
    from cordwood.errors import ConfigError

    if decode not in (None, _GROUPS):
        raise ConfigError("--decode", decode, f"must be {_GROUPS}")
    options = DumpOptions(
        start_offset=start,
        limit=count,
        shows_records=records or values or decode is not None,
        shows_values=values,
        decodes_groups=decode is not None,
    )
    plans = [plan_dump(path, kind) for path in file]
    try:
        sound = [_dump_one(plan, options, as_json=as_json) for plan in plans]
        sys.stdout.flush()
    except BrokenPipeError:
        let_go_of_stdout()
        return
    if not all(sound):
        raise typer.Exit(1)


def _dump_one(plan: "DumpPlan", options: "DumpOptions", *, as_json: bool) -> bool:
    """Show one file; whether it is what it should be."""
    from cordwood.cli.dump.dump_lines import Soundness
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
