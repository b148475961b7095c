"""The settings that a client has: property files, options, TLS contexts, examples."""
