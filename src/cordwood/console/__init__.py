"""The console: a web page about a store or a broker, served by a process of its own.

It reads the files of a store beside their owner, and asks a broker once per interval for what lives
in its memory. It changes nothing unless it is told to.
"""
