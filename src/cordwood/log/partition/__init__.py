"""One partition for its one writer, in rooms. Imports point from the first to the last.

    partition_log   the log: it makes its parts and passes calls to them
    appends         the ways into a log, and what an append waits for
    removal         what takes records away: at the beginning, at the end, in between
    writing         the end of the log: batches are written, segments roll, syncs make them durable
    view            what readers and other replicas see
    log_loader      from a directory of files to segments, offsets and producers
    derived_state   producers and leader epochs, which the batches imply, and their files
    state           the one state, who changes it, and what a log is given

`writing`, `view` and `log_loader` do not know each other.
"""
