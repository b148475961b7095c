"""A text that must not be shown: a password, a token, a private key."""

from typing import final

from cordwood.errors import HIDDEN


@final
class Secret:
    """Shows itself as ``[hidden]`` wherever it is printed, logged or formatted.

    `reveal` is the only way to its text, so a search for it finds every place that uses one.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        import hmac  # not at the top: it loads OpenSSL, and every broker loads this module

        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))
