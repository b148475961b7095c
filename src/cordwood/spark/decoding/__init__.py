"""Bytes of records as typed columns: Arrow arrays in, Arrow arrays and reasons out.

Pure, except for the client of the registry and the compiler of Protobuf schemas.
"""
