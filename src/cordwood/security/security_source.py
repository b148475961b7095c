"""Where the users, access rules and quotas in force come from."""

from collections.abc import Callable, Sequence
from typing import Protocol

from cordwood.security.security_state import SecurityState

Change = Callable[[SecurityState], SecurityState]


class SecuritySource(Protocol):
    """The file of a broker that is alone, or the cluster of a member. Any thread may call it.

    directories   those with the file; a member has none
    secret        makes up credentials for users that do not exist
    """

    @property
    def state(self) -> SecurityState: ...

    @property
    def secret(self) -> bytes: ...

    @property
    def directories(self) -> Sequence[str]: ...

    def when_changed(self, listener: Callable[[SecurityState], None]) -> None:
        """Call `listener` with the state now, and after each change."""
        ...

    def change(self, change: Change) -> SecurityState:
        """Replace the state by what `change` makes of it: in effect on return.

        Raises `OSError`, or `ConfigError` if it cannot be changed here.
        """
        ...
