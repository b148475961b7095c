"""The one state of a log, the one place that changes it, and what a log is given at its opening.

`LogState` is a frozen value that says how far everything has come; its module lists who moves what.
`StateHolder` replaces it, under the log's lock. What depends on being one replica of many is in
`replica_role`. This room must not know any of the parts that ask for changes.
"""
