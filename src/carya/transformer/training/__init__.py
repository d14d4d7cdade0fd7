"""Fine-tuning of encoders along the label tree."""
