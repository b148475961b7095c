"""A command line that cannot be followed, where no value of an option is to blame."""

from cordwood.errors import ConfigError


class UsageError(ConfigError):
    """Something is missing, or two things exclude each other. Ends with exit code 2."""

    def __init__(self, message: str) -> None:
        super().__init__("", "", message)
        self.args = (message,)
