"""Encoders of texts, fine-tuned as matchers (paper, section 4): what of X-Transformer and XR-Transformer needs PyTorch.

From the ground up: `tokens` and `batches` make texts tensors, `attention` and `encoder` make tensors vectors, `heads`
and `losses` rank nodes of the label tree by vectors, `curriculum`, `step`, `loop` and `checkpoints` train them. So far
nothing knows the native core. `rankers` puts native rankers side by side and `mixture` mixes them, `matcher` makes the
encoder that `settings` describe, `ranker` has the verbs; `xr_transformer` and `x_transformer` are the models.
"""
