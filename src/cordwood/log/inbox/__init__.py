"""Changes that other processes ask of a store's owner: values, files and the service."""
