"""Topic names for the shell to complete."""

import os

import typer


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Topics of the directory that the command line names; a broker is not asked for this.

    Whatever is wrong is no reason to disturb someone who is typing.
    """
    from varve.cli.target import AT_VARIABLE, DirectoryTarget, parse_target
    from varve.errors import VarveError
    from varve.format.file_names import INTERNAL_TOPICS
    from varve.log.topic_catalog import read_catalog
    from varve.storage.files import RealFileSystem

    try:
        target = parse_target(context.params.get("at") or os.environ.get(AT_VARIABLE))
        if not isinstance(target, DirectoryTarget):
            return []
        catalog = read_catalog(RealFileSystem(), target.paths)
    except (VarveError, OSError):
        return []
    names = [] if catalog is None else sorted(catalog.topics)
    return [n for n in names if n.startswith(incomplete) and n not in INTERNAL_TOPICS]
