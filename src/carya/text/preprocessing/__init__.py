"""Optional steps before texts are split into terms."""
