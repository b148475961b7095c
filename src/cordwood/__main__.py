"""``python -m cordwood``."""

from cordwood.cli.app import main

main()
