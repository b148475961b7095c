"""Several broker processes of one node over one store: the keeper and its workers.

`serve --processes` starts it; see decision 0022.
"""
