"""The port to object storage, and the stores behind it: a directory, S3, what pyarrow has.

`object_port` says what every store promises; the archive relies on nothing else. The URL chooses
the store (`object_store`), and pyarrow and boto3 are imported when a store is first used. This room
must not know segments, manifests or topics: it sees keys and bytes.
"""
