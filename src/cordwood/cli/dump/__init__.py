"""``cordwood dump``: the files of a log, printed."""
