"""HTTP endpoints: the route table, request handlers and message schemas."""
