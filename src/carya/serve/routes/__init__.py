"""Server routes: declarations, handlers, messages and the OpenAPI document."""
