"""The objects of the store in `object_server`, as files.

DIRECTORY/objects/NAME    the bytes, or a directory of parts; NAME is the quoted bucket and key
DIRECTORY/tags/NAME       the ETag: the MD5, or that of the parts' MD5s
DIRECTORY/parts/          what is being uploaded
"""

import hashlib
import os
import shutil
import threading
from pathlib import Path
from urllib.parse import quote, unquote
from uuid import uuid4


class Objects:
    """The files of the store. Any thread may use it, and several processes."""

    def __init__(self, directory: Path) -> None:
        self._objects = directory / "objects"
        self._tags = directory / "tags"
        self._parts = directory / "parts"
        self._lock = threading.Lock()
        for each in (self._objects, self._tags, self._parts):
            each.mkdir(parents=True, exist_ok=True)

    def _path(self, name: str) -> Path:
        return self._objects / quote(name, safe="")

    def files(self, name: str) -> list[Path]:
        """The files of an object, in order. `FileNotFoundError` if there is no such object."""
        path = self._path(name)
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        path.stat()
        return files

    def size_and_time(self, name: str) -> tuple[int, float]:
        return sum(f.stat().st_size for f in self.files(name)), self._path(name).stat().st_mtime

    def tag(self, name: str) -> str:
        return (self._tags / quote(name, safe="")).read_text()

    def begin(self) -> Path:
        """Where to write the bytes of a new object or part."""
        return self._parts / uuid4().hex

    def finish(self, written: Path, name: str, tag: str) -> None:
        path = self._path(name)
        if written.is_dir() or path.is_dir():
            self.delete(name)
        (self._tags / quote(name, safe="")).write_text(tag)
        written.replace(path)

    def finish_if(self, written: Path, name: str, tag: str, headers: dict[str, str]) -> bool:
        """The same, if the object is what the headers of a conditional put say."""
        with self._lock:
            try:
                found = self.tag(name)
            except FileNotFoundError:
                found = None
            wanted = headers.get("if-match")
            if wanted not in (None, f'"{found}"', found) or (found and "if-none-match" in headers):
                written.unlink()
                return False
            self.finish(written, name, tag)
            return True

    def begin_upload(self) -> str:
        """The id of an upload in parts."""
        upload = uuid4().hex
        for folder in self._of_upload(upload):
            folder.mkdir()
        return upload

    def _of_upload(self, upload: str) -> tuple[Path, Path]:
        """The directories of its parts, and of their tags."""
        return self._parts / upload, self._parts / f"{upload}.tags"

    def finish_part(self, written: Path, upload: str, number: int, tag: str) -> None:
        parts, tags = self._of_upload(upload)
        (tags / f"{number:05d}").write_text(tag)
        written.replace(parts / f"{number:05d}")

    def finish_upload(self, name: str, upload: str) -> str:
        """Make an object of the parts, without copying them; return its tag."""
        parts, tags = self._of_upload(upload)
        sums = [bytes.fromhex(tag.read_text()) for tag in sorted(tags.iterdir())]
        digest = hashlib.md5(b"".join(sums), usedforsecurity=False).hexdigest()
        tag = f"{digest}-{len(sums)}"
        shutil.rmtree(tags)
        self.finish(parts, name, tag)
        return tag

    def delete(self, name: str) -> None:
        path = self._path(name)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        (self._tags / quote(name, safe="")).unlink(missing_ok=True)

    def names(self, prefix: str) -> list[str]:
        return sorted(n for n in map(unquote, os.listdir(self._objects)) if n.startswith(prefix))
