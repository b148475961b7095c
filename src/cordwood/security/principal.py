"""A principal: the name that a client has after authentication."""

from typing import Final, NamedTuple, Self

USER: Final = "User"


class Principal(NamedTuple):
    """``User:alice``: a type, which is ``User`` for all clients, and a name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError unless `text` is ``type:name`` with both parts."""
        kind, colon, name = text.partition(":")
        if not (colon and kind and name):
            raise ValueError("must be type:name, such as User:alice")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
EVERYBODY: Final = Principal(USER, "*")  # in a rule
