"""Fine-tune encoders along the label tree."""
