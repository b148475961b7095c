"""The control of several processes of one node, in place of the controllers of a cluster."""
