"""What a viewer sees instead of a page that cannot be made."""

from http import HTTPStatus

from cordwood.console.pages.page import BadParameterError, PageForbiddenError, PageNotFoundError
from cordwood.errors import (
    BrokerRefusedError,
    BrokerUnreachableError,
    CordwoodError,
    UnknownPartitionError,
    UnknownTopicError,
)
from cordwood.remote.refusals import is_forbidden
from cordwood.value_class import dataclass


class LoginNeededError(Exception):
    """The viewer has not logged in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a viewer sees instead of a page."""

    status: HTTPStatus
    title: str
    text: str


def failure_of(error: Exception) -> Failure:
    """The answer to an error, in words for a viewer."""
    match error:
        case PageNotFoundError():
            return Failure(status=HTTPStatus.NOT_FOUND, title="Not found", text=str(error))
        case UnknownTopicError() | UnknownPartitionError():
            return Failure(status=HTTPStatus.NOT_FOUND, title="Not found", text=str(error))
        case PageForbiddenError():
            return Failure(status=HTTPStatus.FORBIDDEN, title="Not allowed", text=str(error))
        case BadParameterError():
            return Failure(status=HTTPStatus.BAD_REQUEST, title="Not understood", text=str(error))
        case BrokerUnreachableError():
            return Failure(
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                title="The broker does not answer",
                text=f"{error}. The page comes back when the broker does.",
            )
        case BrokerRefusedError() if is_forbidden(error):
            return Failure(status=HTTPStatus.FORBIDDEN, title="Not allowed", text=str(error))
        case CordwoodError() | OSError() | TimeoutError():
            return Failure(
                status=HTTPStatus.BAD_GATEWAY, title="That did not work", text=str(error)
            )
        case _:
            return Failure(
                status=HTTPStatus.INTERNAL_SERVER_ERROR,
                title="A fault of the console",
                text="The page could not be made. The log of the console says why.",
            )
