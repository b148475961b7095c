"""The pages: a request in, a view model out, and how it is rendered."""
