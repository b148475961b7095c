"""What a segment is made of: each part owns one concern and does not know the segment.

Appends, zeros and cuts (`segment_writer`), open files (`segment_handles`, with the limit for all
in `handle_cache`), indexes (`segment_indexes`), timestamps, names, limits. `ReadableSegment` is
what readers see, wherever the files lie: an archived segment is one too. This room must not know
other segments, nor when a segment begins and ends.
"""
