"""The command `cordwood`, with an archiver that looks twice a second instead of twice a minute."""

from __future__ import annotations

from cordwood.cli.app import main
from cordwood.log.store import archiving

archiving.ARCHIVE_S = 0.5  # type: ignore[misc]  # final in the product
main()
