"""Native rankers over the vectors of a fine-tuned encoder."""
