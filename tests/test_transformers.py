"""X-Transformer and XR-Transformer, small and on a CPU: the same verbs as other models, and the same promises."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import carya
from carya.errors import InputError, ModelFormatError, NotFittedError, ParameterError, SaveError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from carya.transformer.rankers.mixture import Mixture, Said, crossed, keyed, pool_of  # noqa: E402

import tiny_encoders  # noqa: E402

torch.set_num_threads(1)
TEXTS, LABELS = tiny_encoders.corpus(260)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoders.write("bert", tmp_path_factory.mktemp("bert"))


def settings(bert: Path, **changes):
    small = {
        "encoder": str(bert),
        "pooling": "mean",  # what a random encoder learns by soonest
        "max_length": 32,
        "epochs": (1, 3),
        "batch_tokens": 256,
        "learning_rate": 3e-3,
        "head_learning_rate": 2e-2,
        "matcher_branching": 4,
        "matcher_leaf": 6,
        "vectorizer": carya.Tfidf(min_df=1, n_jobs=2),
        "ranker": carya.XRLinear(max_leaf=8, n_jobs=2),
        "refit": False,
        "n_jobs": 2,
        "device": "cpu",
    }
    return small | changes


@pytest.fixture(scope="module")
def model(bert: Path) -> carya.XRTransformer:
    return carya.XRTransformer(**settings(bert)).fit(TEXTS, LABELS, names={"l00": "the first"})


def same(a: sp.csr_array, b: sp.csr_array) -> bool:
    return all(np.array_equal(getattr(a, one), getattr(b, one)) for one in ("indptr", "indices", "data"))


def test_it_learns(model: carya.XRTransformer) -> None:
    texts, labels = tiny_encoders.corpus(60, seed=5)
    assert model.score(texts, labels) > 0.8
    best = model.suggest("w0 w1 w2 w3 w4 w0", top_k=1)[0]
    assert (best.label, best.name) == ("l00", "the first")
    assert 0.3 < best.score <= 1
    assert model.suggest("w0 w1 w2 w3 w4 w0", min_score=best.score) == [best]
    assert set(model.dev_) == {"head", "concatenated", "linear", "neighbours", "mixed"}
    assert sum(model.dev_["mixed"].values()) >= max(sum(one.values()) for one in model.dev_.values()) - 1e-9
    assert sum(model.weights_.values()) == pytest.approx(1)


def test_vectors_are_of_length_1_and_the_head_ranks_by_them(model: carya.XRTransformer) -> None:
    vectors = model.encode(TEXTS[:20])
    assert vectors.shape == (20, 32)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert same(model.rankers_["head"].predict(vectors), model.predict(TEXTS[:20], using="head"))
    layer = model.rankers_["head"].layers_[0]
    scores = vectors @ layer.dense.T + layer.offsets
    best = model.predict(TEXTS[:20], using="head", top_k=1)
    assert np.array_equal(layer.order[scores.argmax(1)], best.indices)
    assert np.allclose(1 / (1 + np.exp(-scores.max(1))), best.data, rtol=1e-4)


def test_saved_and_opened_it_ranks_the_same(model: carya.XRTransformer, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    assert (tmp_path / "model" / "encoder" / "model.safetensors").exists()
    opened = carya.load(tmp_path / "model")
    assert isinstance(opened, carya.XRTransformer)
    assert same(opened.predict(TEXTS[:30]), model.predict(TEXTS[:30]))
    assert opened.label_names_[0] == "the first"
    opened.save(tmp_path / "model")  # over itself: a model with other files is still a model
    assert same(carya.load(tmp_path / "model").predict(TEXTS[:5]), model.predict(TEXTS[:5]))


def test_a_damaged_encoder_is_an_error(model: carya.XRTransformer, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    weights = tmp_path / "model" / "encoder" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ModelFormatError, match="damaged"):
        carya.load(tmp_path / "model")
    weights.unlink()
    with pytest.raises(ModelFormatError, match="No such file"):
        carya.load(tmp_path / "model")
    (tmp_path / "model" / "other.txt").write_text("not ours")
    with pytest.raises(SaveError, match="left alone"):
        model.save(tmp_path / "model")


def test_same_seed_same_model(bert: Path) -> None:
    few = settings(bert, epochs=(1,), held_out=0.0)
    one, other = (carya.XRTransformer(**few).fit(TEXTS[:80], LABELS[:80]) for _ in range(2))
    assert same(one.predict(TEXTS), other.predict(TEXTS))
    assert one.weights_ == dict.fromkeys(("head", "concatenated", "linear", "neighbours"), pytest.approx(1 / 4))


def test_dev_texts_may_be_given_or_chosen_and_training_done_again(bert: Path) -> None:
    few = settings(bert, epochs=(1,), refit=True)
    Y = sp.csr_array(carya.TextRanker(carya.Tfidf(min_df=1)).fit(TEXTS, LABELS).label_matrix(LABELS))
    chosen = carya.XRTransformer(**few).fit(TEXTS, Y, dev=np.arange(20))
    assert chosen.labels_[3] == "3"
    assert sum(epoch["tokens"] for epoch in chosen.history_) == sum(len(text.split()) + 2 for text in TEXTS)
    given = carya.XRTransformer(**few).fit(TEXTS[20:], Y[20:], dev=(TEXTS[:20], Y[:20]))
    assert sum(epoch["tokens"] for epoch in given.history_) == sum(len(text.split()) + 2 for text in TEXTS[20:])
    assert given.dev_["linear"] == chosen.dev_["linear"]


@pytest.mark.parametrize(
    "changes",
    [
        {"head": "shortlist", "head_beam": 2, "objective": "squared-hinge"},
        {"objective": "softmax"},
        {"bootstrap": "linear"},
        {"layers": 2, "recompute": True, "accumulate": 2},
        {"cost_sensitive": True},
    ],
    ids=["shortlist", "softmax", "linear", "layers", "costs"],
)
def test_every_way_of_training_works(bert: Path, changes: dict) -> None:
    model = carya.XRTransformer(**settings(bert, epochs=(1, 2), **changes)).fit(TEXTS[:160], LABELS[:160])
    head = model.rankers_["head"]
    assert head.tree_.depth == (2 if "head" in changes else 1)
    guessed = carya.metrics.precision(model.label_matrix(LABELS), model.predict(TEXTS, using="head"), k=5)
    assert guessed > 0.06  # five at random: 1.5 / 24


def test_an_encoder_may_stay_as_it_is(bert: Path, tmp_path: Path) -> None:
    frozen = carya.XRTransformer(**settings(bert, fine_tune=False, cache=str(tmp_path / "cache"))).fit(TEXTS, LABELS)
    assert set(frozen.weights_) == {"concatenated", "linear", "neighbours"}
    (file,) = (tmp_path / "cache").iterdir()
    vectors = np.load(file)
    np.save(file, vectors[::-1])  # what is in the cache is used
    again = carya.XRTransformer(**settings(bert, fine_tune=False, cache=str(tmp_path / "cache"))).fit(TEXTS, LABELS)
    dense = [model.rankers_["concatenated"].layers_[-1].dense for model in (frozen, again)]
    assert not np.array_equal(*dense)


def test_near_texts_vote_for_their_labels(model: carya.XRTransformer, bert: Path) -> None:
    near = model.rankers_["neighbours"]
    assert same(near.predict(model.encode(TEXTS[:20])), model.predict(TEXTS[:20], using="neighbours"))
    assert same(model.predict(TEXTS[:20], using="neighbours", beam_width=1), near.predict(model.encode(TEXTS[:20])))
    few = settings(bert, epochs=(1,), neighbours=0)
    assert "neighbours" not in carya.XRTransformer(**few).fit(TEXTS[:80], LABELS[:80]).weights_


def test_labels_are_learned_from_what_is_written_about_them(bert: Path) -> None:
    rare = ["l22", "l23"]  # no training text has them
    rows = [row for row, labels in enumerate(LABELS) if not set(labels) & set(rare)]
    columns = [f"l{label:02d}" for label in range(24)]
    Y = sp.csr_array([[float(label in LABELS[row]) for label in columns] for row in rows])
    written = {str(at): " ".join(f"w{5 * at + word}" for word in range(5)) for at in range(24)}
    texts, labels = tiny_encoders.corpus(150, seed=5)
    asked = [row for row, own in enumerate(labels) if set(own) & set(rare)]

    def found(model: carya.XRTransformer) -> float:
        S = model.predict([texts[row] for row in asked], using="head", top_k=5)
        return np.mean([bool({f"l{at:02d}" for at in S[[place]].indices} & set(rare)) for place in range(len(asked))])

    few = settings(bert, epochs=(1, 4), held_out=0.0, neighbours=0)
    given = [TEXTS[row] for row in rows]
    with_texts = carya.XRTransformer(**few, label_text_passes=6)
    assert found(with_texts.fit(given, Y, label_texts=written | {"no label": "w1"})) > 0.7
    assert found(carya.XRTransformer(**few).fit(given, Y)) < 0.3
    # The words of a label resemble it, even if nobody learns from them.
    unread = carya.XRTransformer(**few | {"label_text_passes": 0, "label_text_weight": 0.0})
    likened = carya.XRTransformer(**few | {"label_text_passes": 0, "label_text_weight": 50.0})
    before, after = (one.fit(given, Y, label_texts=written).rankers_["head"].layers_[0] for one in (unread, likened))
    gained = (after.dense - before.dense)[np.argsort(after.order)]
    vectors = likened.encode([written[str(at)] for at in range(24)])
    assert np.allclose(gained, 50 * (vectors - vectors.mean(0)), atol=1e-3)


def test_a_mixture_is_learned_from_what_rankers_say_together() -> None:
    rng = np.random.default_rng(0)
    rows, labels, right = 400, 30, rng.integers(30, size=400)
    truth = sp.csr_array((np.ones(rows, np.float32), (np.arange(rows), right)), shape=(rows, labels))
    # Two rankers suggest the right label below a wrong one; only what both suggest is right.
    found = []
    for gap in (1, 15):
        S = np.zeros((rows, labels), np.float32)
        S[np.arange(rows), right] = 0.5
        S[np.arange(rows), (right + gap + rng.integers(10, size=rows)) % labels] = 0.8
        found.append(sp.csr_array(S))

    def said(some: slice) -> Said:
        pool = pool_of([one[some] for one in found])
        return Said(pool, {f"ranker {at}": pool.lookup(*keyed(one[some])) for at, one in enumerate(found)})

    frequency = np.zeros(labels, np.float32)
    first, second = said(slice(0, 200)), said(slice(200, 400))
    mixture = Mixture.learned(first, first.relevant(truth[:200]), frequency, seed=0)
    S = mixture.rank(second, top_k=2)
    assert carya.metrics.precision(truth[200:], S, k=1) == 1
    assert carya.metrics.precision(truth[200:], found[0][200:], k=1) == 0
    assert np.diff(S.indptr).tolist() == [2] * 200
    assert (S.data[::2] > S.data[1::2]).all()
    whole = mixture.rank(second, top_k=9)
    assert np.allclose(np.add.reduceat(whole.data, whole.indptr[:-1]), 1)
    assert carya.metrics.precision(truth[:200], crossed(first, first.relevant(truth[:200]), frequency, 0), k=1) > 0.95
    nothing = pool_of([sp.csr_array((3, labels), dtype=np.float32)] * 2)
    none = np.zeros(0, np.float32)
    assert mixture.rank(Said(nothing, {"ranker 0": none, "ranker 1": none}), top_k=2).nnz == 0


def test_a_model_with_a_learned_mixture(bert: Path, tmp_path: Path) -> None:
    few = settings(bert, epochs=(1, 1), mixture="learned")
    written = {f"l{label:02d}": f"w{5 * label} w{5 * label + 1}" for label in range(24)}
    model = carya.XRTransformer(**few).fit(TEXTS, LABELS, dev=tiny_encoders.corpus(120, seed=3), label_texts=written)
    assert set(model.dev_) == {"head", "concatenated", "linear", "neighbours", "label_texts", "mixed"}
    assert model.weights_["label_texts"] == 0
    assert model.dev_["mixed"]["P@1"] > 0.8  # of texts that the mixture was not learned from
    S = model.predict(TEXTS[:20], top_k=3)
    assert (np.diff(S.indptr) == 3).all()
    assert (S.data > 0).all()
    assert np.array_equal(S.indices, model.predict(TEXTS[:20], top_k=10).indices.reshape(20, 10)[:, :3].ravel())
    model.save(tmp_path / "model")
    assert same(carya.load(tmp_path / "model").predict(TEXTS[:20], top_k=3), S)
    again = carya.XRTransformer(**few | {"refit": True}).fit(TEXTS, LABELS, dev=np.arange(60), label_texts=written)
    assert again.score(*tiny_encoders.corpus(60, seed=5)) > 0.8


def test_x_transformer_finds_clusters_then_labels(bert: Path, tmp_path: Path) -> None:
    model = carya.XTransformer(**settings(bert, epochs=2)).fit(TEXTS, LABELS, label_texts={"l00": "w0 w1"})
    ranker = model.rankers_["concatenated"]
    assert ranker.tree_.depth == 2
    assert ranker.layers_[0].weights.n_weights == 0  # the encoder alone finds clusters
    assert model.score(TEXTS, LABELS) > 0.8
    model.save(tmp_path / "model")
    assert same(carya.load(tmp_path / "model").predict(TEXTS[:9]), model.predict(TEXTS[:9]))
    from carya.transformer.x_transformer import together

    S = together([model, model], TEXTS[:9], top_k=3)
    assert np.array_equal(S.indices, model.predict(TEXTS[:9], top_k=3).indices)


def test_what_cannot_be_is_named(bert: Path, model: carya.XRTransformer) -> None:
    with pytest.raises(NotFittedError, match="this XRTransformer is not fitted yet"):
        carya.XRTransformer().predict(["a"])
    with pytest.raises(ParameterError, match="'objective' of XRTransformer must be 'bce'"):
        carya.XRTransformer(objective="best").fit(TEXTS, LABELS)
    with pytest.raises(InputError, match="max_length is 400, the encoder reads at most 64 tokens"):
        carya.XRTransformer(**settings(bert, max_length=400)).fit(TEXTS, LABELS)
    with pytest.raises(InputError, match="there are 260 texts but labels for 259"):
        carya.XRTransformer(**settings(bert)).fit(TEXTS, LABELS[1:])
    with pytest.raises(InputError, match="device 'abacus' cannot be used"):
        carya.XRTransformer(**settings(bert, device="abacus")).fit(TEXTS, LABELS)
    with pytest.raises(InputError, match="dev must be different numbers of texts"):
        carya.XRTransformer(**settings(bert)).fit(TEXTS, LABELS, dev=np.array([1, 1]))
    with pytest.raises(InputError, match="using must be one of 'head', 'concatenated', 'linear', 'neighbours' or None"):
        model.predict(["w1"], using="tail")
    with pytest.raises(InputError, match="need no clusters"):
        carya.XTransformer(**settings(bert, matcher_leaf=100)).fit(TEXTS, LABELS)


def test_the_command_line_trains_one(bert: Path, tmp_path: Path) -> None:
    from carya.cli import app

    lines = [json.dumps({"text": t, "labels": ls}) for t, ls in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    data, out = str(tmp_path / "data.jsonl"), str(tmp_path / "model")
    flags = ["--encoder", str(bert), "--epochs", "1,2", "--max-length", "32", "--min-df", "1", "--no-refit"]
    run = CliRunner().invoke(app, ["train", data, "-o", out, "--model", "xr-transformer", "--max-leaf", "8", *flags])
    assert run.exit_code == 0, run.output
    assert carya.load(out).rankers_["linear"].max_leaf == 8
    run = CliRunner().invoke(app, ["evaluate", out, data, "--json"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["P@1"] > 0.8
    run = CliRunner().invoke(app, ["inspect", out, "--json"])
    assert sum(json.loads(run.stdout)["mixture"].values()) == pytest.approx(1)
    assert CliRunner().invoke(app, ["inspect", out]).exit_code == 0
    (tmp_path / "texts.txt").write_text("w0 w1 w2\nw7 w8\n")
    run = CliRunner().invoke(app, ["predict", out, str(tmp_path / "texts.txt"), "--top-k", "2"])
    assert [len(json.loads(line)["labels"]) for line in run.stdout.splitlines()] == [2, 2]
    run = CliRunner().invoke(app, ["train", data, "-o", out, "--epochs", "1,2"])
    assert "--epochs is for --model xr-transformer or x-transformer" in str(run.exception)
    run = CliRunner().invoke(app, ["train", data, "-o", out, "--model", "xt"])
    assert "--model is 'xt'; it must be" in str(run.exception)
