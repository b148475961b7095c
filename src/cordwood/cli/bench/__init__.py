"""``cordwood bench``: a quick measurement on the user's own disk or broker."""
