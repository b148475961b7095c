"""Metrics that clients send (KIP-714): subscriptions, clients, OTLP, and what is shown."""
