"""Train an encoder so that texts and the texts of their labels have similar embeddings (NGAME, Dahiya et al. 2023).

Each batch consists of texts and one label text per text; the only negatives are the label texts of the other texts in
the batch. They are hard negatives, because the labels of a batch are in the same clusters of the label tree.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from carya.core.matrices import Csr
from carya.core.progress import Progress
from carya.transformer.encoder.batches import BatchLayout, make_batch
from carya.transformer.encoder.encoder import Encoder
from carya.transformer.encoder.tokens import Tokens
from carya.transformer.inputs import LabelTexts
from carya.transformer.settings import TransformerSettings
from carya.transformer.training import distributed
from carya.transformer.training.losses import row_losses
from carya.transformer.training.schedule import parameter_groups, rate_factor
from carya.trees.label_tree import LabelTree

_TEMPERATURE = 0.05
_LOSS = "decoupled-softmax"
_STAGE = 10_000  # so that the random numbers differ from those of the stages that train heads


def train_contrastively(
    settings: TransformerSettings,
    encoder: Encoder,
    tokens: Tokens,
    labels: Csr,
    label_texts: LabelTexts,
    label_tokens: Tokens,
    tree: LabelTree,
    progress: Progress,
) -> list[float]:
    """Train the encoder for `contrastive_epochs` epochs and return the mean loss of each epoch.

    Texts whose labels have no label texts are ignored.
    """
    described = Csr.of_scipy(labels.to_scipy()[:, label_texts.labels])
    texts = np.flatnonzero(np.diff(described.indptr))
    if texts.size < 2:
        return []
    all_tokens = tokens.append(label_tokens)
    clusters = tree.parents[-1][label_texts.labels]
    optimizer = torch.optim.AdamW(parameter_groups(encoder, settings), fused=encoder.device.type == "cuda")
    encoder.train()
    means = []
    with progress.stage("contrastive training") as report:
        for epoch in range(settings.contrastive_epochs):
            rng = np.random.default_rng([settings.seed, _STAGE, epoch])
            size = settings.contrastive_batch_size
            batches = distributed.shard(contrastive_batches(rng, texts, described, clusters, size))
            losses = []
            for number, (rows, sampled) in enumerate(batches):
                torch.manual_seed(
                    int(np.random.SeedSequence([settings.seed, _STAGE, epoch, number]).generate_state(1)[0])
                )
                loss = _batch_loss(encoder, settings, all_tokens, len(tokens), rows, sampled, described)
                loss.backward()
                done = (epoch + (number + 1) / len(batches)) / settings.contrastive_epochs
                for group in optimizer.param_groups:
                    group["lr"] = group["peak_lr"] * rate_factor(done, settings.warmup_ratio)
                distributed.average_gradients(
                    parameter for group in optimizer.param_groups for parameter in group["params"]
                )
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.detach())
                if report is not None:
                    report(epoch * len(batches) + number + 1, settings.contrastive_epochs * len(batches))
            means.append(float(torch.stack(losses).mean()))
    return means


def contrastive_batches(
    rng: np.random.Generator, texts: NDArray[np.int64], described: Csr, clusters: NDArray[np.int32], size: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the texts of each batch in random order, and the distinct labels sampled for them, one per text.

    Texts are sorted by the cluster of the sampled label; the clusters are in random order.
    """
    counts = np.diff(described.indptr)[texts]
    sampled = described.indices[described.indptr[texts] + (rng.random(texts.size) * counts).astype(np.int64)]
    order_of_clusters = rng.permutation(int(clusters.max()) + 1)
    order = np.lexsort((rng.random(texts.size), order_of_clusters[clusters[sampled]]))
    parts = [order[begin : begin + size] for begin in range(0, order.size, size)]
    if len(parts) > 1 and parts[-1].size < 2:  # a batch with one text has no negatives
        parts.pop()
    batches = [(texts[part], np.unique(sampled[part]).astype(np.int64)) for part in parts]
    return [batches[number] for number in rng.permutation(len(batches))]


def _batch_loss(
    encoder: Encoder,
    settings: TransformerSettings,
    all_tokens: Tokens,
    n_texts: int,
    rows: NDArray[np.int64],
    sampled: NDArray[np.int64],
    described: Csr,
) -> torch.Tensor:
    """Return the mean of two losses, for ranking label texts given a text and for ranking texts given a label text."""
    selected = np.concatenate([rows, n_texts + sampled])
    embeddings = _embed(encoder, all_tokens, selected, settings.max_length)
    relevance = described.take(rows).to_scipy()[:, sampled].toarray() > 0
    relevant = torch.from_numpy(relevance.astype(np.float32)).to(encoder.device)
    scores = embeddings[: rows.size] @ embeddings[rows.size :].T / _TEMPERATURE
    return (row_losses(scores, relevant, _LOSS).mean() + row_losses(scores.T, relevant.T, _LOSS).mean()) / 2


def _embed(encoder: Encoder, tokens: Tokens, rows: NDArray[np.int64], max_length: int) -> torch.Tensor:
    """Return the embeddings of the texts, with gradients."""
    lengths = tokens.lengths(max_length)[rows]
    packed = encoder.layout(lengths, max_length, 1).packed
    encoder.set_attention(packed=packed)
    cuda = encoder.device.type == "cuda"
    # The longest texts come first, so that the two halves of the batch have little padding if texts are not packed.
    order = np.arange(rows.size) if packed else np.argsort(-lengths, kind="stable")
    parts = [order] if packed else np.array_split(order, 4)
    embeddings = []
    for part in parts:
        if not part.size:
            continue
        layout = BatchLayout(
            packed=packed,
            max_length=max_length,
            tokens=int(lengths[part].sum()),
            rows=part.size,
            pad=encoder.tokenizer.pad_token_id or 0,
            first_position=encoder.first_position,
        )
        batch = make_batch(tokens, rows[part], layout, pinned=cuda).to(encoder.device)
        with torch.autocast("cuda", torch.bfloat16, enabled=cuda):
            embeddings.append(encoder(batch, part.size)[: part.size])
    inverse = np.empty(rows.size, np.int64)
    inverse[np.concatenate(parts)] = np.arange(rows.size)
    return torch.cat(embeddings)[torch.from_numpy(inverse).to(encoder.device)].float()
