"""Tiny encoders of several architectures with random weights, texts with learnable labels, and a fine-tuning run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from carya.core.progress import Progress
from carya.transformer.encoder.encoder import Encoder
from carya.transformer.encoder.tokens import Tokens
from carya.transformer.settings import TransformerSettings
from carya.transformer.training.checkpoints import Checkpoints
from carya.transformer.training.curriculum import plan_stages
from carya.transformer.training.examples import Examples, Targets
from carya.transformer.training.heads import Heads
from carya.transformer.training.trainer import Trainer

N_LABELS = 24
WORDS_PER_LABEL = 5
WORDS = [f"w{number}" for number in range(N_LABELS * WORDS_PER_LABEL)]
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
VOCABULARY_SIZE = len(WORDS) + len(SPECIAL_TOKENS)
#: A tree with 4 clusters of 6 labels.
PARENTS = [np.zeros(4, np.int32), np.arange(N_LABELS, dtype=np.int32) // 6]

_SMALL = {"vocab_size": VOCABULARY_SIZE, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_BERT = {**_SMALL, "intermediate_size": 64, "max_position_embeddings": 80}
_TOKEN_IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
CONFIGS = {
    "bert": lambda: transformers.BertConfig(**_BERT),
    "roberta": lambda: transformers.RobertaConfig(**_BERT, **_TOKEN_IDS),
    "distilbert": lambda: transformers.DistilBertConfig(
        vocab_size=VOCABULARY_SIZE, dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=80
    ),
    "modernbert": lambda: transformers.ModernBertConfig(
        **_BERT, **_TOKEN_IDS, local_attention=8, cls_token_id=2, sep_token_id=3
    ),
    "xlnet": lambda: transformers.XLNetConfig(
        vocab_size=VOCABULARY_SIZE, d_model=32, n_layer=2, n_head=2, d_inner=64, **_TOKEN_IDS
    ),
}


def save_encoder(architecture: str, folder: Path) -> Path:
    """Save an encoder with random weights and its tokenizer in the ``transformers`` format."""
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    transformers.AutoModel.from_config(CONFIGS[architecture]()).save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(SPECIAL_TOKENS + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    template = "$A [SEP] [CLS]" if architecture == "xlnet" else "[CLS] $A [SEP]"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=64,
    ).save_pretrained(folder)
    return folder


def make_corpus(rows: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Return texts with one or two of 24 labels; each text contains words of its labels and some random words."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(rows):
        chosen = rng.choice(N_LABELS, rng.integers(1, 3), replace=False).tolist()
        words = [f"w{WORDS_PER_LABEL * label + rng.integers(WORDS_PER_LABEL)}" for label in chosen for _ in range(4)]
        words += [f"w{rng.integers(len(WORDS))}" for _ in range(rng.integers(0, 6))]
        texts.append(" ".join(rng.permutation(words).tolist()))
        labels.append([f"l{label:02d}" for label in chosen])
    return texts, labels


def make_tokens(encoder: Encoder, rows: int, max_length: int = 32) -> Tokens:
    """Return the tokens of the first `rows` texts in the corpus."""
    return Tokens.of(make_corpus(rows)[0], encoder.tokenizer, max_length=max_length)


def make_targets(rows: int) -> list[Targets]:
    """Return the target clusters and target labels of the first `rows` texts in the corpus."""
    targets = []
    for cluster_size in (6, 1):
        nodes = [sorted({int(label[1:]) // cluster_size for label in labels}) for labels in make_corpus(rows)[1]]
        starts = np.cumsum([0, *map(len, nodes)]).astype(np.int64)
        flat = np.concatenate(nodes).astype(np.int32)
        targets.append(Targets(starts, flat, np.ones(flat.size, np.float32), N_LABELS // cluster_size))
    return targets


class TinyTraining:
    """A small fine-tuning run with two stages: first on clusters, then on labels.

    Parameters
    ----------
    epochs : int
        Number of epochs in the second stage.
    checkpoint_dir : Path, optional
    settings
        Trainer settings that differ from the defaults of the tests.
    """

    def __init__(
        self,
        encoder_folder: Path,
        *,
        epochs: int = 5,
        rows: int = 150,
        checkpoint_dir: Path | None = None,
        progress: Progress | None = None,
        packed: bool | None = None,
        **settings: Any,
    ) -> None:
        self.encoder = Encoder.load(encoder_folder, pooling="mean")  # random encoders learn fastest with mean pooling
        self.heads = Heads(PARENTS, self.encoder.width, dropout=0.1)
        examples = Examples(make_tokens(self.encoder, rows), make_targets(rows))
        defaults: dict[str, Any] = {
            "batch_tokens": 256,
            "learning_rate": 3e-3,
            "head_learning_rate": 2e-2,
            "checkpoint_steps": 3,
        }
        self.trainer = Trainer(
            self.encoder,
            self.heads,
            examples,
            plan_stages([1, 2], (1, epochs), 32, progressive_length=True),
            TransformerSettings(**defaults | settings),
            validation=examples,
            initialize=self._initialize,
            checkpoints=None if checkpoint_dir is None else Checkpoints(checkpoint_dir, {"name": "test"}),
            progress=progress,
            packed=packed,
        )

    @property
    def parameters(self) -> list[torch.Tensor]:
        """All trained parameters."""
        return [*self.encoder.parameters(), *self.heads.parameters()]

    @property
    def sums(self) -> list[float]:
        """The sum of the absolute values in each parameter tensor."""
        return [float(parameter.detach().double().abs().sum()) for parameter in self.parameters]

    def _initialize(self, level: int) -> None:
        frequencies = np.full(PARENTS[level - 1].size, 0.1)
        self.heads.initialize(level, PARENTS[1] if level == 2 else None, frequencies, log_odds=True)
