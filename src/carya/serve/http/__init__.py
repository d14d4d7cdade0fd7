"""HTTP layer: middleware, connection limits, threads, errors, metrics and logging."""
