"""Native rankers that use TF-IDF features and the embeddings of an encoder, and their combination."""
