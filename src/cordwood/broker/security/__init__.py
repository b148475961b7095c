"""Security inside the broker: what needs its configuration, threads or clock, and no connection."""
