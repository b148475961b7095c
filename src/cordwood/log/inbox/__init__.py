"""Changes that other processes request from the owner of a store: values, files, service."""
