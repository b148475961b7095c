"""Sealed segments elsewhere: copied to object storage, verified, and read back as one log."""

from varve.archive.archive_store import ArchiveStore, open_archive
from varve.archive.archives import StoreArchives
from varve.archive.object_store import ObjectStore, open_object_store

__all__ = ["ArchiveStore", "ObjectStore", "StoreArchives", "open_archive", "open_object_store"]
