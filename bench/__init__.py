"""Measures Cordwood beside the limits of the machine and beside its peers. Run by script/bench."""
