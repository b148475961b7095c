"""``cordwood dump``: prints and checks the files of a log."""
