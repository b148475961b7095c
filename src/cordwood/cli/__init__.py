"""Commands. They parse, call one function of a room below, and render what it says.

Data goes to standard output, trouble to standard error. Nothing heavy is imported before a
command needs it: `cordwood --help` answers at once.
"""
