"""Upload models with model cards to the Hugging Face Hub, and download them."""
