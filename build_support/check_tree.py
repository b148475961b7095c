"""Fail if a file of the project names a package registry or a path of one machine.

Lock files must work with any configured index, and nothing may depend on the path of a checkout.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FORBIDDEN = {
    "a package index": re.compile(r"\bpypi\.org|\bfiles\.pythonhosted\.org|\btest\.pypi\."),
    "a Maven repository": re.compile(r"\brepo1?\.maven\.|\bmaven\.org|\brepository\.apache\."),
    "an index option": re.compile(r"^\s*--?(extra-index-url|index-url|find-links|i|f)\b", re.M),
    "a home directory": re.compile(r"/(?:home|Users)/[A-Za-z]|/roo[t]/"),
    "this checkout's path": re.compile(re.escape(str(ROOT)) + r"(?=[/\s\"']|$)"),
}


def main() -> int:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode != 0:
        print("skipped: not a git checkout")
        return 0
    found = [
        complaint
        for name in sorted(filter(None, listing.stdout.decode().split("\0")))
        for complaint in complaints_about(name)
    ]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


def complaints_about(name: str) -> list[str]:
    path = ROOT / name
    if not path.is_file():
        return []
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return []
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: names {what}: {match[0].strip()}"
        for what, pattern in FORBIDDEN.items()
        for match in pattern.finditer(text)
    ]


if __name__ == "__main__":
    sys.exit(main())
