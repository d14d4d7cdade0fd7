"""HTTP plumbing: middleware, connection limits, threads, errors, metrics and logging."""
