"""What a forked child finds in the place of its parent's store.

A fork copies a store's objects, but not its lock, its threads, or the right to write. Whatever the
child appended would get offsets that the parent gives again. And any of the copied locks may be
held by a thread that the child does not have. So in the child every field of the objects that
were named here is replaced by a refusal, which raises when it is used in any way.

This costs nothing while nobody forks.
"""

import os
from typing import Final, NoReturn, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from cordwood.errors import ForkedStoreError

_refusing: Final[WeakKeyDictionary[object, str]] = WeakKeyDictionary()


class Refusal:
    """Raises `ForkedStoreError` for every use."""

    __slots__ = ("_name", "_owner_pid")

    def __init__(self, name: str, owner_pid: int) -> None:
        self._name = name
        self._owner_pid = owner_pid

    def _refuse(self, *_arguments: object) -> NoReturn:
        raise ForkedStoreError(self._name, owner_pid=self._owner_pid)

    __getattr__ = __bool__ = __call__ = __contains__ = __enter__ = __exit__ = _refuse
    __getitem__ = __iter__ = __len__ = __next__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse


def refuse_after_fork(owner: object, name: str) -> None:
    """Make `owner`, which is called `name`, unusable in children that are forked from now on."""
    _refusing[owner] = name


def is_forked(owner: object) -> bool:
    """Whether `owner` belongs to the parent of this process, and refuses."""
    return any(isinstance(value, Refusal) for value in vars(owner).values())


@runtime_checkable
class Inheritable(Protocol):
    """An owner of something that the child must give up at once."""

    def close_inherited(self) -> None:
        """Called in the child, before the fields are replaced. Takes no lock."""
        ...


def _in_child() -> None:
    parent = os.getppid()
    for owner, name in list(_refusing.items()):
        if isinstance(owner, Inheritable):
            owner.close_inherited()
        fields = vars(owner)
        fields.update(dict.fromkeys(fields, Refusal(name, parent)))
    _refusing.clear()


os.register_at_fork(after_in_child=_in_child)
