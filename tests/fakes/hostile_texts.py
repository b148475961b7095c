"""Texts that try to become markup, script, headers or formulas where they are shown."""

from typing import Final

HOSTILE: Final = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "</textarea><svg/onload=alert(1)>",
    "javascript:alert(1)",
    "{{7*7}}${7*7}<%= 7*7 %>",
    '"\' onmouseover="alert(1)',
    "<!--<script>-->",
    "</script><script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\u202ereversed\u202c\u2066isolated\u2069",
    "line\r\nSet-Cookie: a=b\r\n\r\nbody",
    '=HYPERLINK("http://example.invalid","x")',
    "%0d%0aX-Injected: 1",
    "a" * 5000,
    "\x00\x01\x1b[31m",
    "data: x\n\nevent: hit\ndata: {}\n\n",
)
