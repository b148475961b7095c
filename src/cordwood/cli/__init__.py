"""The command line. A command parses, calls one function of a lower room, and prints the result.

Data goes to standard output, messages to standard error. Commands import heavy modules only when
they run, so `cordwood --help` answers at once.
"""
