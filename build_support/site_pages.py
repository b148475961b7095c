"""A hook for mkdocs: remove the words for the tests from the fences of code blocks.

A block may begin with three backticks and `python no-run`. The words after the language tell
`tests/docs` what to do with the block; mkdocs would not recognise it as a code block.
"""

from __future__ import annotations

import re
from typing import Any

_WORDS = re.compile(r"^(```[a-z]+)[ \t]+[a-z -]+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _WORDS.sub(r"\1", markdown)
