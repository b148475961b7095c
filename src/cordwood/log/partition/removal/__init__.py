"""What takes records away: deletion at the beginning, truncation at the end, replacement between.

A crash in the middle leaves records that should have gone, never a log that claims what it lost.
The plans come from `log/rules`, by way of `upkeep_outlook`; compaction asks for replacements. This
room must not decide what is removed, and must not know how records come in.
"""
