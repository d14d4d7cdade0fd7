"""Estimate the time, memory, model size and latency of a training before it starts."""
