"""A store opened by its files, for commands that look into them. Nothing is locked or written."""

from collections.abc import Collection

from cordwood.cli.at.archives_on_demand import ArchivesOnDemand
from cordwood.cli.at.local_files import files_of
from cordwood.cli.at.target import parse_target
from cordwood.clock import SystemClock
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.settings import load_settings
from cordwood.storage.files import RealFileSystem


def open_files(at: str | None, topics: Collection[str] = ()) -> ReadOnlyStore:
    """The store behind ``--at``, beside whoever writes it; only those topics where some are named.

    Topics have the defaults that ``cordwood serve`` would give them here. A broker's files must be
    on this machine.
    """
    wanted = frozenset(topics)
    fs, clock = RealFileSystem(), SystemClock()
    return ReadOnlyStore(
        files_of(parse_target(at)).paths,
        fs=fs,
        clock=clock,
        defaults=load_settings().topic_defaults,
        archives=ArchivesOnDemand(fs, clock),
        wants=None if not wanted else lambda topic, number: topic in wanted,
    )
