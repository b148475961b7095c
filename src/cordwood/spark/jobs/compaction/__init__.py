"""The parts of the compact job: plan groups of segments, scan their keys, rewrite them."""
