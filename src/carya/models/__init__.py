"""The three phases put together."""
