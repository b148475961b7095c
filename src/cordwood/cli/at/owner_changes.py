"""Changes made by whoever owns a store: this process where nobody does, else through its inbox.

Work that takes long shows how far it is. Interrupted, it ends where it is ours; an owner goes on
with what it has begun.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import typer

from cordwood.cli.render import work_bar
from cordwood.errors import ChangeRefusedError, CordwoodError, LogError
from cordwood.remote.refusals import config_error

if TYPE_CHECKING:
    from cordwood.log.inbox.store_change import ChangeAnswer, StoreChange

_NAMED_ERROR: Final = re.compile(r"[A-Za-z]+(?:Error|Exception): (.*)", re.DOTALL)
_INTERRUPTED: Final = 130


def ask_owner(paths: Sequence[str], change: "StoreChange", *, label: str) -> "ChangeAnswer":
    """Have the store in `paths` changed; `label` says what is done while that takes time.

    A refusal is raised as what it is: `ConfigError` where a setting is wrong, else `LogError`.
    """
    from cordwood.library import request_change
    from cordwood.settings import load_settings

    defaults = load_settings().topic_defaults
    try:
        with work_bar(label) as show:
            return request_change(
                paths[0],
                change,
                data_dirs=paths[1:],
                defaults=defaults,
                on_progress=lambda work: show(work.done, work.total),
            )
    except ChangeRefusedError as error:
        raise refused(error) from error
    except KeyboardInterrupt:
        typer.secho(
            "cordwood: interrupted; whoever owns the store goes on with what it has begun", err=True
        )
        raise typer.Exit(_INTERRUPTED) from None


def refused(error: ChangeRefusedError) -> CordwoodError:
    """What the owner of a store refused something with."""
    named = _NAMED_ERROR.fullmatch(error.reason)
    reason = error.reason if named is None else named[1]
    return config_error(reason) or LogError(reason)
