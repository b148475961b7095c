"""Benchmarks: Cordwood compared with the machine's limits and with peers. Run by script/bench."""
