"""Finding records: a small grammar, and its execution on Arrow scans."""
