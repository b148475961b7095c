"""How clients prove who they are: the mechanisms of SASL, both sides of them, and users."""
