"""Publications: batches into several logs, all or none, each publication once."""
