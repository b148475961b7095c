"""Write the table of configuration keys into docs/operating.md, from the keys themselves.

``python build_support/config_table.py`` rewrites it, ``--check`` fails when it is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from varve.log.config_key import ConfigKey  # noqa: E402
from varve.log.topic_config import CONFIG_KEYS  # noqa: E402

DOCUMENT = ROOT / "docs" / "operating.md"
BEGIN = "<!-- keys: made by build_support/config_table.py -->\n"
END = "<!-- end of keys -->\n"


def main(arguments: list[str]) -> int:
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    current = before + BEGIN + table() + END + after
    if arguments == ["--check"]:
        if current != text:
            print(f"{DOCUMENT.relative_to(ROOT)} is out of date: run build_support/config_table.py")
        return int(current != text)
    DOCUMENT.write_text(current, encoding="utf-8")
    return 0


def table() -> str:
    rows = [row(key) for key in CONFIG_KEYS if not key.is_internal]
    return "\n".join(["| key | default | accepts | meaning |", "|---|---|---|---|", *rows, ""])


def row(key: ConfigKey) -> str:
    name = f"`{key.name}`" + (" (ours)" if key.since_varve else "")
    default = f"`{key.default_text}`" if key.default_text else "empty"
    accepts = key.rule.removeprefix("must be ").replace("|", "\\|")
    return f"| {name} | {default} | {accepts} | {key.doc} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
