"""One module for each family of APIs: what a request asks of the store or of the groups.

A handler knows no bytes, no versions and no connections: it takes a request's fields and
returns a response's, or a `Deferred` that will have them.
"""
