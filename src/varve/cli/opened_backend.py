"""Opening a target: a directory by its files, a broker by its address."""

from varve.cli.backend import Backend
from varve.cli.target import BrokerTarget, DirectoryTarget, Target


def open_backend(target: Target) -> Backend:
    """The target, ready to be asked. Nothing is locked or created before a change needs it."""
    match target:
        case DirectoryTarget():
            from varve.cli.directory_backend import DirectoryBackend

            return DirectoryBackend(target)
        case BrokerTarget():
            from varve.cli.broker_backend import BrokerBackend

            return BrokerBackend(target)
