"""Opening a target: a directory by its files, a broker by its address."""

from cordwood.cli.at.backend import Backend
from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, Target


def open_backend(target: Target) -> Backend:
    """The target, ready to be asked. Nothing is locked or created before a change needs it."""
    match target:
        case DirectoryTarget():
            from cordwood.cli.at.directory_backend import DirectoryBackend

            return DirectoryBackend(target)
        case BrokerTarget():
            from cordwood.cli.at.broker_backend import BrokerBackend

            return BrokerBackend(target)
