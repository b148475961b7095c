"""Changes of a store through its owner: this process if there is none, else by the inbox.

Long work shows its progress. An interrupt ends the work of this process; another owner continues
what it has begun.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import typer

from cordwood.cli.failures import EXIT_INTERRUPTED
from cordwood.cli.render import work_bar
from cordwood.cli.terminal import say
from cordwood.errors import ChangeRefusedError, CordwoodError, LogError
from cordwood.remote.refusals import config_error

if TYPE_CHECKING:
    from cordwood.log.inbox.store_change import ChangeAnswer, StoreChange

_NAMED_ERROR: Final = re.compile(r"[A-Za-z]+(?:Error|Exception): (.*)", re.DOTALL)


def ask_owner(paths: Sequence[str], change: "StoreChange", *, label: str) -> "ChangeAnswer":
    """Request a change of the store in `paths`; `label` names the work while it takes time.

    A refusal is raised as `ConfigError` if a setting is wrong, else as `LogError`.
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
        say("cordwood: interrupted; if another process owns the store, it continues the work")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def refused(error: ChangeRefusedError) -> CordwoodError:
    """The error with which the owner refused a change."""
    named = _NAMED_ERROR.fullmatch(error.reason)
    reason = error.reason if named is None else named[1]
    return config_error(reason) or LogError(reason)
