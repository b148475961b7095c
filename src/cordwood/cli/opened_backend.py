"""Opening a target: a directory by its files, a broker by its address."""

from cordwood.cli.backend import Backend
from cordwood.cli.target import BrokerTarget, DirectoryTarget, Target


def open_backend(target: Target) -> Backend:
    """The target, ready to be asked. Nothing is locked or created before a change needs it."""
    match target:
        case DirectoryTarget():
            from cordwood.cli.directory_backend import DirectoryBackend

            return DirectoryBackend(target)
        case BrokerTarget():
            from cordwood.cli.broker_backend import BrokerBackend

            return BrokerBackend(target)
