"""Sealed segments into the archive: what is due, in which order, and the proof that it arrived.

A segment is in the archive when the manifest names it, and the manifest names it when the store
has proved that it has each object (`verified_put`). This room must not know how topics are
restored, and must not decide what is deleted.
"""
