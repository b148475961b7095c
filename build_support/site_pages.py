"""What mkdocs is told about our documents: a fence may carry words for the tests.

A block opened with three backticks and `python no-run` is Python to a reader; the words behind the
language say what `tests/docs` does with it, and mkdocs would not know the block for one.
"""

from __future__ import annotations

import re
from typing import Any

_WORDS = re.compile(r"^(```[a-z]+)[ \t]+[a-z -]+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _WORDS.sub(r"\1", markdown)
