"""X-Transformer and XR-Transformer: models with a fine-tuned encoder (section 4 of the paper). Requires PyTorch.

`encoder` converts texts to embeddings, `training` fine-tunes the encoder and its heads along the label tree, and
`rankers` combines native rankers that use TF-IDF features and embeddings. `base` implements the methods that the two
models, `xr_transformer` and `x_transformer`, share.
"""
