"""Sealed segments elsewhere: copied to object storage, verified, and read back as one log.

In rooms; imports point from the first to the last, never back.

    archives_on_demand   the archives of a store, loaded only if a topic has one
    store_archives       the archives of a store; `archive_turns`: one server holds up no other
    opened_archive       an archive without the store that wrote it
    copying              sealed segments into the archive
    topics               one archived topic: its partitions, its description, restoring it
    fetching             an archived segment, read like a local one
    cache                what was fetched: on the local disk, and in memory
    manifests            what an archive contains, as values and as objects
    objects              the port to object storage, and the stores behind it
"""
