"""``cordwood bench``: a quick measurement on the user's disk or broker."""
