"""Encoders of several kinds, tiny and random, with a tokenizer of their own; and texts whose labels can be learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = [f"w{number}" for number in range(120)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
SIZE = len(WORDS) + len(SPECIAL)

_SMALL = {"vocab_size": SIZE, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_USUAL = {**_SMALL, "intermediate_size": 64, "max_position_embeddings": 80}
CONFIGS = {
    "bert": lambda: transformers.BertConfig(**_USUAL),
    "roberta": lambda: transformers.RobertaConfig(**_USUAL, pad_token_id=0, bos_token_id=2, eos_token_id=3),
    "distilbert": lambda: transformers.DistilBertConfig(
        vocab_size=SIZE, dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=80
    ),
    "modernbert": lambda: transformers.ModernBertConfig(
        **_USUAL, local_attention=8, pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3
    ),
    "xlnet": lambda: transformers.XLNetConfig(
        vocab_size=SIZE, d_model=32, n_layer=2, n_head=2, d_inner=64, pad_token_id=0, bos_token_id=2, eos_token_id=3
    ),
}


def write(kind: str, folder: Path) -> Path:
    """A folder as ``from_pretrained`` reads it."""
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    transformers.AutoModel.from_config(CONFIGS[kind]()).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(SPECIAL + WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    order = "$A [SEP] [CLS]" if kind == "xlnet" else "[CLS] $A [SEP]"
    tokenizer.post_processor = processors.TemplateProcessing(single=order, special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=64,
    ).save_pretrained(folder)
    return folder


def corpus(rows: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Texts of one or two of 24 labels; each label has five words of its own, and there are others."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(rows):
        chosen = rng.choice(24, rng.integers(1, 3), replace=False).tolist()
        words = [f"w{5 * label + rng.integers(5)}" for label in chosen for _ in range(4)]
        words += [f"w{rng.integers(120)}" for _ in range(rng.integers(0, 6))]
        texts.append(" ".join(rng.permutation(words).tolist()))
        labels.append([f"l{label:02d}" for label in chosen])
    return texts, labels
