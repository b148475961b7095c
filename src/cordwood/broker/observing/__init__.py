"""What operators see: metrics, health, log output, the HTTP endpoint."""
