"""Types of the messages in `user_messages`. Made by build_support/message_types.py."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

SCHEMAS: Final[Mapping[int, str]]

class SaslHandshakeRequest:
    mechanism: str

class SaslHandshakeRequestDict(TypedDict, total=False):
    mechanism: str

class SaslHandshakeResponse:
    error_code: int
    mechanisms: tuple[str, ...]

class SaslHandshakeResponseDict(TypedDict, total=False):
    error_code: int
    mechanisms: Sequence[str]

class SaslAuthenticateRequest:
    auth_bytes: bytes

class SaslAuthenticateRequestDict(TypedDict, total=False):
    auth_bytes: bytes

class SaslAuthenticateResponse:
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime: int

class SaslAuthenticateResponseDict(TypedDict, total=False):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime: int

class DescribeUserScramCredentialsRequestUsers:
    name: str

class DescribeUserScramCredentialsRequest:
    users: tuple[DescribeUserScramCredentialsRequestUsers, ...] | None

class DescribeUserScramCredentialsRequestUsersDict(TypedDict, total=False):
    name: str

class DescribeUserScramCredentialsRequestDict(TypedDict, total=False):
    users: Sequence[DescribeUserScramCredentialsRequestUsersDict] | None

class DescribeUserScramCredentialsResponseCredentialInfos:
    mechanism: int
    iterations: int

class DescribeUserScramCredentialsResponseResults:
    user: str
    error_code: int
    error_message: str | None
    credential_infos: tuple[DescribeUserScramCredentialsResponseCredentialInfos, ...]

class DescribeUserScramCredentialsResponse:
    throttle_time: int
    error_code: int
    error_message: str | None
    results: tuple[DescribeUserScramCredentialsResponseResults, ...]

class DescribeUserScramCredentialsResponseCredentialInfosDict(TypedDict, total=False):
    mechanism: int
    iterations: int

class DescribeUserScramCredentialsResponseResultsDict(TypedDict, total=False):
    user: str
    error_code: int
    error_message: str | None
    credential_infos: Sequence[DescribeUserScramCredentialsResponseCredentialInfosDict]

class DescribeUserScramCredentialsResponseDict(TypedDict, total=False):
    throttle_time: int
    error_code: int
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResponseResultsDict]

class AlterUserScramCredentialsRequestDeletions:
    name: str
    mechanism: int

class AlterUserScramCredentialsRequestUpsertions:
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

class AlterUserScramCredentialsRequest:
    deletions: tuple[AlterUserScramCredentialsRequestDeletions, ...]
    upsertions: tuple[AlterUserScramCredentialsRequestUpsertions, ...]

class AlterUserScramCredentialsRequestDeletionsDict(TypedDict, total=False):
    name: str
    mechanism: int

class AlterUserScramCredentialsRequestUpsertionsDict(TypedDict, total=False):
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

class AlterUserScramCredentialsRequestDict(TypedDict, total=False):
    deletions: Sequence[AlterUserScramCredentialsRequestDeletionsDict]
    upsertions: Sequence[AlterUserScramCredentialsRequestUpsertionsDict]

class AlterUserScramCredentialsResponseResults:
    user: str
    error_code: int
    error_message: str | None

class AlterUserScramCredentialsResponse:
    throttle_time: int
    results: tuple[AlterUserScramCredentialsResponseResults, ...]

class AlterUserScramCredentialsResponseResultsDict(TypedDict, total=False):
    user: str
    error_code: int
    error_message: str | None

class AlterUserScramCredentialsResponseDict(TypedDict, total=False):
    throttle_time: int
    results: Sequence[AlterUserScramCredentialsResponseResultsDict]
