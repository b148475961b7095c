"""Publications: batches for several logs, appended all or none, each publication once."""
