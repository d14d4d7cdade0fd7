"""Estimate the time, memory, model size and latency of a training run before it starts."""
