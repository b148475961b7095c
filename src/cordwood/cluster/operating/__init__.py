"""What an operator sees of a cluster and plans for it. Values and decisions only."""
