"""``python -m varve``."""

from varve.cli.app import main

main()
