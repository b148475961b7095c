"""Groups of the consumer protocol (KIP-848): heartbeats, targets, reconciliation."""
