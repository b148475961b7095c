"""One module for each family of APIs, which carries out requests on the store or the groups.

A handler knows neither bytes nor connections: it takes the fields of a request and returns those
of the response, or a `Deferred` that will have them.
"""
