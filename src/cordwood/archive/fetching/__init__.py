"""An archived segment, read like a local one: its log file by range, its small files when needed.

What is fetched is verified before anybody gets it, block by block. A reader that goes through a
file in order is recognised (`read_streams`), and threads fetch ahead for it (`fetch_threads`).
This room must not know manifests as a whole: it gets one `SegmentCopy`.
"""
