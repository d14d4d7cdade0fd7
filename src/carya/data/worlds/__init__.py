"""Generated data: worlds whose right answers are known, of any size."""
