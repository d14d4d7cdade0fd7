"""A small encoder with random weights, for running the transformer experiments without downloading an encoder.

Its vocabulary consists of the most frequent words of the training texts. The precision of a model with such an encoder
is not representative of models with pretrained encoders.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_MAX_WORDS = 5000
_MAX_TOKENS = 128


def save_random_encoder(texts: list[str], folder: Path) -> Path:
    """Save a BERT encoder with two layers of width 64, and return its folder."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    torch.manual_seed(0)
    counts = Counter(word for text in texts for word in text.lower().split())
    words = [*_SPECIAL_TOKENS, *(word for word, _ in counts.most_common(_MAX_WORDS))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=_MAX_TOKENS,
    )
    transformers.utils.logging.disable_progress_bar()
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=_MAX_TOKENS,
    ).save_pretrained(folder)
    return folder
