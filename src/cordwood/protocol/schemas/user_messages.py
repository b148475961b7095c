"""Authentication by SASL, and the users that can."""

from collections.abc import Mapping
from typing import Final

from cordwood.protocol.api_catalog import ApiKey

SCHEMAS: Final[Mapping[int, str]] = {
    ApiKey.SASL_HANDSHAKE: """
        request
          mechanism string
        response
          error_code int16
          mechanisms []string
    """,
    ApiKey.SASL_AUTHENTICATE: """
        request
          auth_bytes bytes
        response
          error_code int16
          error_message string?
          auth_bytes bytes
          session_lifetime int64 1+
    """,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: """
        request
          users []?
            name string
        response
          throttle_time int32
          error_code int16
          error_message string?
          results []
            user string
            error_code int16
            error_message string?
            credential_infos []
              mechanism int8
              iterations int32
    """,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: """
        request
          deletions []
            name string
            mechanism int8
          upsertions []
            name string
            mechanism int8
            iterations int32
            salt bytes
            salted_password bytes
        response
          throttle_time int32
          results []
            user string
            error_code int16
            error_message string?
    """,
}
