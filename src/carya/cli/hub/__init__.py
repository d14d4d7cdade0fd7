"""Commands for models on the Hugging Face Hub."""
