"""The way to the controllers: metadata comes in; heartbeats and requests go out."""
