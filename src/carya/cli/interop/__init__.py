"""Commands for libpecos models and C programs."""
