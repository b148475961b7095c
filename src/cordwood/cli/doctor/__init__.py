"""``cordwood doctor``: checks of the machine, the software, and a store or broker."""
