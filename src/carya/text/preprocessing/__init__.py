"""Optional text preprocessing: word segmentation and stemming."""
