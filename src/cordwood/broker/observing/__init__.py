"""What operators see: metrics, health, log lines, the HTTP endpoint."""
