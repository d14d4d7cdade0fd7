"""Tests for X-Transformer and XR-Transformer with tiny encoders on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner, Result

import carya
from carya.errors import (
    InputError,
    MissingExtraError,
    ModelFormatError,
    NotFittedError,
    ParameterError,
    SaveError,
    UnknownParameterError,
)

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from carya.transformer.rankers.mixture import (
    CandidateScores,
    Mixture,
    all_candidates,
    cross_validated_ranking,
    keys_and_scores,
)

import tiny_encoders

pytestmark = pytest.mark.transformer
torch.set_num_threads(1)  # more threads would not speed up these tiny tensors, but would slow down concurrent tests
TEXTS, LABELS = tiny_encoders.make_corpus(260)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoders.save_encoder("bert", tmp_path_factory.mktemp("bert"))


def settings(bert: Path, **changes: Any) -> dict[str, Any]:
    """Return parameters of a model that trains within seconds."""
    small = {
        "encoder": str(bert),
        "pooling": "mean",  # random encoders learn fastest with mean pooling
        "max_length": 32,
        "epochs": (1, 3),
        "batch_tokens": 256,
        "learning_rate": 3e-3,
        "head_learning_rate": 2e-2,
        "matcher_branching": 4,
        "matcher_leaf_size": 6,
        "vectorizer": carya.Tfidf(min_df=1, n_jobs=2),
        "ranker": carya.XRLinear(max_leaf_size=8, n_jobs=2),
        "refit": False,
        "n_jobs": 2,
        "device": "cpu",
    }
    return small | changes


@pytest.fixture(scope="module")
def model(bert: Path) -> carya.XRTransformer:
    return carya.XRTransformer(**settings(bert)).fit(TEXTS, LABELS, names={"l00": "the first"})


def equal(a: sp.csr_array, b: sp.csr_array) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("indptr", "indices", "data"))


def tree_ranker(model: carya.XRTransformer | carya.XTransformer, name: str) -> carya.XRLinear:
    """Return the ranker with the given name after checking that it is a tree."""
    ranker = model.rankers_[name]
    assert isinstance(ranker, carya.XRLinear)
    return ranker


def test_fitted_model_ranks_new_texts(model: carya.XRTransformer) -> None:
    texts, labels = tiny_encoders.make_corpus(60, seed=5)
    assert model.score(texts, labels) > 0.8
    best = model.suggest("w0 w1 w2 w3 w4 w0", top_k=1)[0]
    assert (best.label, best.name) == ("l00", "the first")
    assert 0.3 < best.score <= 1
    assert model.suggest("w0 w1 w2 w3 w4 w0", min_score=best.score) == [best]
    scores = model.validation_scores_
    assert set(scores) == {"head", "concatenated", "linear", "neighbors", "mixture"}
    assert sum(scores["mixture"].values()) >= max(sum(ranker.values()) for ranker in scores.values()) - 1e-9
    assert sum(model.weights_.values()) == pytest.approx(1)


def test_head_ranks_by_embeddings(model: carya.XRTransformer) -> None:
    embeddings = model.encode(TEXTS[:20])
    assert embeddings.shape == (20, 32)
    assert np.allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-5)
    assert equal(model.rankers_["head"].predict(embeddings), model.predict(TEXTS[:20], using="head"))
    layer = tree_ranker(model, "head").layers_[0]
    scores = embeddings @ layer.dense.T + layer.biases
    best = model.predict(TEXTS[:20], using="head", top_k=1)
    assert np.array_equal(layer.order[scores.argmax(1)], best.indices)
    assert np.allclose(1 / (1 + np.exp(-scores.max(1))), best.data, rtol=1e-4)


def test_saved_and_loaded_model_ranks_the_same(model: carya.XRTransformer, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    assert (tmp_path / "model" / "encoder" / "model.safetensors").exists()
    loaded = carya.load(tmp_path / "model")
    assert isinstance(loaded, carya.XRTransformer)
    assert equal(loaded.predict(TEXTS[:30]), model.predict(TEXTS[:30]))
    assert loaded.label_names_[0] == "the first"
    assert (loaded.max_length, loaded.epochs, loaded.device) == (32, (1, 3), "auto")
    loaded.save(tmp_path / "model")  # a model folder with an encoder can also be replaced
    assert equal(carya.load(tmp_path / "model").predict(TEXTS[:5]), model.predict(TEXTS[:5]))


def test_damaged_encoder_is_a_format_error(model: carya.XRTransformer, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    weights = tmp_path / "model" / "encoder" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ModelFormatError, match="damaged"):
        carya.load(tmp_path / "model")
    weights.unlink()
    with pytest.raises(ModelFormatError, match="No such file"):
        carya.load(tmp_path / "model")
    (tmp_path / "model" / "other.txt").write_text("not part of the model")
    with pytest.raises(SaveError, match="It was not modified"):
        model.save(tmp_path / "model")


@pytest.mark.parametrize(
    ("options", "package"), [({"stemmer": "english"}, "snowballstemmer"), ({"segmenter": "icu"}, "icu4py")]
)
def test_vectorizers_with_stemmers_and_segmenters(
    options: dict[str, Any], package: str, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package)
    vectorizer = carya.Tfidf(min_df=1, analyzer="auto", **options)
    few = settings(bert, epochs=(1,), validation_fraction=0.0, vectorizer=vectorizer)
    texts = [f"{text} words 機器學習" for text in TEXTS[:80]]
    model = carya.XRTransformer(**few).fit(texts, LABELS[:80])
    assert model.vectorizers_[0].analyzers_ == ["word", "char_wb"]
    known = {term.text for term in model.vectorizers_[0].terms_in("word 機器")}
    assert ("word" if "stemmer" in options else "機器") in known
    model.save(tmp_path / "model")
    assert equal(carya.load(tmp_path / "model").predict(texts[:10]), model.predict(texts[:10]))
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, "icu4py.breakers", None)
    with pytest.raises(MissingExtraError, match=package):  # raised before the encoder is trained
        carya.XRTransformer(**few).fit(texts, LABELS[:80])


def test_equal_seeds_give_equal_models(bert: Path) -> None:
    few = settings(bert, epochs=(1,), validation_fraction=0.0)
    first, second = (carya.XRTransformer(**few).fit(TEXTS[:80], LABELS[:80]) for _ in range(2))
    assert equal(first.predict(TEXTS), second.predict(TEXTS))
    assert first.weights_ == dict.fromkeys(("head", "concatenated", "linear", "neighbors"), pytest.approx(1 / 4))


def test_refit_trains_on_all_texts(bert: Path) -> None:
    few = settings(bert, epochs=(1,), refit=True)
    Y = sp.csr_array(carya.TextRanker(carya.Tfidf(min_df=1)).fit(TEXTS, LABELS).label_matrix(LABELS))
    held_out = carya.XRTransformer(**few).fit(TEXTS, Y, validation_data=np.arange(20))
    assert held_out.labels_[3] == "3"
    assert sum(epoch["tokens"] for epoch in held_out.history_) == sum(len(text.split()) + 2 for text in TEXTS)
    separate = carya.XRTransformer(**few).fit(TEXTS[20:], Y[20:], validation_data=(TEXTS[:20], Y[:20]))
    assert sum(epoch["tokens"] for epoch in separate.history_) == sum(len(text.split()) + 2 for text in TEXTS[20:])
    assert separate.validation_scores_["linear"] == held_out.validation_scores_["linear"]


@pytest.mark.parametrize(
    "changes",
    [
        {"head_mode": "shortlist", "head_beam_width": 2, "head_loss": "squared-hinge"},
        {"head_loss": "softmax"},
        {"head_loss": "decoupled-softmax"},
        {"bootstrap": "linear"},
        {"pooled_layers": 2, "gradient_checkpointing": True, "gradient_accumulation_steps": 2},
        {"cost_sensitive": True},
    ],
    ids=["shortlist", "softmax", "decoupled", "linear", "layers", "costs"],
)
def test_training_options(bert: Path, changes: dict[str, Any]) -> None:
    model = carya.XRTransformer(**settings(bert, epochs=(1, 2), **changes)).fit(TEXTS[:160], LABELS[:160])
    assert tree_ranker(model, "head").tree_.depth == (2 if "head_mode" in changes else 1)
    precision = carya.metrics.precision(model.label_matrix(LABELS), model.predict(TEXTS, using="head"), k=5)
    assert precision > 0.06  # the expected value for five random labels is 1.5 / 24


def test_embeddings_of_frozen_encoders_are_cached(bert: Path, tmp_path: Path) -> None:
    parameters = settings(bert, fine_tune=False, cache_dir=str(tmp_path / "cache"))
    model = carya.XRTransformer(**parameters).fit(TEXTS, LABELS)
    assert set(model.weights_) == {"concatenated", "linear", "neighbors"}
    (file,) = (tmp_path / "cache").iterdir()
    np.save(file, np.load(file)[::-1])  # changes the cached values to detect whether they are used
    from_cache = carya.XRTransformer(**parameters).fit(TEXTS, LABELS)
    weights, weights_from_cache = (
        tree_ranker(fitted, "concatenated").layers_[-1].dense for fitted in (model, from_cache)
    )
    assert not np.array_equal(weights, weights_from_cache)


def test_similar_texts_vote_for_their_labels(model: carya.XRTransformer, bert: Path) -> None:
    ranker = model.rankers_["neighbors"]
    S = ranker.predict(model.encode(TEXTS[:20]))
    assert equal(S, model.predict(TEXTS[:20], using="neighbors"))
    assert equal(S, model.predict(TEXTS[:20], using="neighbors", beam_width=1))
    few = settings(bert, epochs=(1,), n_neighbors=0)
    assert "neighbors" not in carya.XRTransformer(**few).fit(TEXTS[:80], LABELS[:80]).weights_


def test_label_texts_train_labels_without_training_texts(bert: Path) -> None:
    rare = ["l22", "l23"]  # no training text has these labels
    rows = [row for row, labels in enumerate(LABELS) if not set(labels) & set(rare)]
    training_texts = [TEXTS[row] for row in rows]
    ids = [f"l{label:02d}" for label in range(24)]
    Y = sp.csr_array([[float(label in LABELS[row]) for label in ids] for row in rows])
    label_texts = {str(label): " ".join(f"w{5 * label + word}" for word in range(5)) for label in range(24)}
    texts, labels = tiny_encoders.make_corpus(150, seed=5)
    queries = [text for text, text_labels in zip(texts, labels, strict=True) if set(text_labels) & set(rare)]

    def recall(model: carya.XRTransformer) -> float:
        """Return the fraction of queries for which the head ranks a rare label among the top five."""
        S = model.predict(queries, using="head", top_k=5)
        return float(np.mean([bool({22, 23} & set(S[[row]].indices.tolist())) for row in range(len(queries))]))

    few = settings(bert, epochs=(1, 4), validation_fraction=0.0, n_neighbors=0)
    repeated = carya.XRTransformer(**few, label_text_repeats=6)
    assert recall(repeated.fit(training_texts, Y, label_texts=label_texts | {"unknown": "w1"})) > 0.7
    assert recall(carya.XRTransformer(**few).fit(training_texts, Y)) < 0.3
    # Scaled embeddings of the label texts are added to the head's weights, even if training does not use these texts.
    without = carya.XRTransformer(**few | {"label_text_repeats": 0, "label_text_weight": 0.0})
    weighted = carya.XRTransformer(**few | {"label_text_repeats": 0, "label_text_weight": 50.0})
    before, after = (
        tree_ranker(model.fit(training_texts, Y, label_texts=label_texts), "head").layers_[0]
        for model in (without, weighted)
    )
    difference = (after.dense - before.dense)[np.argsort(after.order)]
    embeddings = weighted.encode([label_texts[str(label)] for label in range(24)])
    assert np.allclose(difference, 50 * (embeddings - embeddings.mean(0)), atol=1e-3)


def test_contrastive_training_makes_texts_similar_to_their_label_texts(bert: Path) -> None:
    label_texts = {f"l{label:02d}": " ".join(f"w{5 * label + word}" for word in range(5)) for label in range(23)}
    few = settings(
        bert, epochs=(1,), validation_fraction=0.0, learning_rate=1e-3, label_text_repeats=0, label_text_weight=0.0
    )

    def precision(**changes: Any) -> float:
        model = carya.XRTransformer(**few | changes).fit(TEXTS[:120], LABELS[:120], label_texts=label_texts)
        S = model.predict(TEXTS[120:], using="label_texts", top_k=1)
        return carya.metrics.precision(model.label_matrix(LABELS[120:]), S, k=1)

    contrastive = {"contrastive_epochs": 4, "contrastive_batch_size": 24}
    trained = precision(**contrastive)
    assert trained > precision() + 0.1
    assert precision(**contrastive) == trained
    with pytest.raises(InputError, match=r"label_texts is missing\. It is required with contrastive_epochs=4"):
        carya.XRTransformer(**few | contrastive).fit(TEXTS[:40], LABELS[:40])


def test_labels_mentioned_in_a_text_are_suggested(bert: Path, tmp_path: Path) -> None:
    words = ["gardening", "astronomy", "locomotive", "photography"]
    names = {f"l{label:02d}": words[label % 4] for label in range(20, 24)}
    texts, labels = tiny_encoders.make_corpus(240, seed=9)
    texts = [
        " ".join([text, *[f"{names[label][:-1]}s" for label in own if label in names]])
        for text, own in zip(texts, labels, strict=True)
    ]
    Y = sp.csr_array([[float(f"l{label:02d}" in own and label != 23) for label in range(24)] for own in labels])
    named = {str(int(label[1:])): name for label, name in names.items()}
    few = settings(bert, epochs=(1,), mixture="learned")
    model = carya.XRTransformer(**few).fit(texts, Y, label_texts=named)
    unseen = ["a book on photographic art", "the photographer"]
    assert model.predict(unseen, using="label_terms", top_k=1).indices.tolist() == [23, 23]
    assert (model.predict(unseen, using="label_coverage", top_k=1).data > 0.5).all()
    assert all(23 in model.predict([text], top_k=24).indices for text in unseen)
    assert model.weights_["label_terms"] == model.weights_["label_coverage"] == 0
    model.save(tmp_path / "model")
    loaded = carya.load(tmp_path / "model")
    assert equal(loaded.predict(unseen), model.predict(unseen))
    assert equal(loaded.predict_selected(unseen, [["23"], ["3"]]), model.predict_selected(unseen, [["23"], ["3"]]))
    assert model.subset(["23", "3"]).predict(unseen, using="label_terms", top_k=1).indices.tolist() == [1, 1]
    assert "label_terms" not in carya.XRTransformer(**few).fit(texts, Y).rankers_
    without = carya.XRTransformer(**few, match_label_texts=False).fit(texts, Y, label_texts=named)
    assert "label_terms" not in without.rankers_


def test_labels_in_the_vocabulary_require_label_texts(bert: Path) -> None:
    few = settings(bert, epochs=(1,), validation_fraction=0.0)
    with pytest.raises(InputError, match=r"label_texts is missing\. It is required with vocabulary"):
        carya.XRTransformer(**few).fit(TEXTS[:40], LABELS[:40], vocabulary=["new"])
    model = carya.XRTransformer(**few).fit(TEXTS[:80], LABELS[:80], vocabulary=["a new"], label_texts={"a new": "w0"})
    assert model.labels_[0] == "a new"
    assert model.predict(TEXTS[:1], using="label_texts", labels=["a new"]).nnz == 1


def test_mixture_learns_from_the_agreement_of_rankers() -> None:
    rng = np.random.default_rng(0)
    rows, n_labels, correct = 400, 30, rng.integers(30, size=400)
    truth = sp.csr_array((np.ones(rows, np.float32), (np.arange(rows), correct)), shape=(rows, n_labels))
    # Both rankers rank a wrong label above the correct label, but never the same wrong label.
    rankings = []
    for gap in (1, 15):
        S = np.zeros((rows, n_labels), np.float32)
        S[np.arange(rows), correct] = 0.5
        S[np.arange(rows), (correct + gap + rng.integers(10, size=rows)) % n_labels] = 0.8
        rankings.append(sp.csr_array(S))

    def score(selected: slice) -> CandidateScores:
        candidates = all_candidates([S[selected] for S in rankings])
        scores = [candidates.lookup(*keys_and_scores(S[selected])) for S in rankings]
        return CandidateScores(candidates, {"ranker 0": scores[0], "ranker 1": scores[1]})

    log_frequency = np.zeros(n_labels, np.float32)
    first, second = score(slice(0, 200)), score(slice(200, 400))
    relevance = first.relevance(truth[:200])
    mixture = Mixture.fit(first, relevance, log_frequency, seed=0)
    S = mixture.rank(second, top_k=2)
    assert carya.metrics.precision(truth[200:], S, k=1) == 1
    assert carya.metrics.precision(truth[200:], rankings[0][200:], k=1) == 0
    assert np.diff(S.indptr).tolist() == [2] * 200
    assert (S.data[::2] > S.data[1::2]).all()
    all_scores = mixture.rank(second, top_k=9)
    assert np.allclose(np.add.reduceat(all_scores.data, all_scores.indptr[:-1]), 1)
    cross_validated = cross_validated_ranking(first, relevance, log_frequency, seed=0)
    assert carya.metrics.precision(truth[:200], cross_validated, k=1) > 0.95
    no_candidates = all_candidates([sp.csr_array((3, n_labels), dtype=np.float32)] * 2)
    no_scores = dict.fromkeys(("ranker 0", "ranker 1"), np.zeros(0, np.float32))
    assert mixture.rank(CandidateScores(no_candidates, no_scores), top_k=2).nnz == 0


def test_model_with_a_learned_mixture(bert: Path, tmp_path: Path) -> None:
    few = settings(bert, epochs=(1, 1), mixture="learned")
    label_texts = {f"l{label:02d}": f"w{5 * label} w{5 * label + 1}" for label in range(24)}
    validation_data = tiny_encoders.make_corpus(120, seed=3)
    model = carya.XRTransformer(**few).fit(TEXTS, LABELS, validation_data=validation_data, label_texts=label_texts)
    assert set(model.validation_scores_) == {
        "head",
        "concatenated",
        "linear",
        "neighbors",
        "label_texts",
        "label_terms",
        "label_coverage",
        "mixture",
    }
    assert model.weights_["label_texts"] == 0
    assert model.validation_scores_["mixture"]["P@1"] > 0.8  # estimated by cross-validation
    S = model.predict(TEXTS[:20], top_k=3)
    assert (np.diff(S.indptr) == 3).all()
    assert (S.data > 0).all()
    assert np.array_equal(S.indices, model.predict(TEXTS[:20], top_k=10).indices.reshape(20, 10)[:, :3].ravel())
    model.save(tmp_path / "model")
    assert equal(carya.load(tmp_path / "model").predict(TEXTS[:20], top_k=3), S)
    refitted = carya.XRTransformer(**few | {"refit": True})
    refitted.fit(TEXTS, LABELS, validation_data=np.arange(60), label_texts=label_texts)
    assert refitted.score(*tiny_encoders.make_corpus(60, seed=5)) > 0.8


def test_x_transformer_ranks_labels_in_clusters(bert: Path, tmp_path: Path) -> None:
    model = carya.XTransformer(**settings(bert, epochs=2)).fit(TEXTS, LABELS, label_texts={"l00": "w0 w1"})
    ranker = tree_ranker(model, "concatenated")
    assert ranker.tree_.depth == 2
    assert ranker.layers_[0].weights.n_weights == 0  # clusters are selected without sparse features
    assert model.score(TEXTS, LABELS) > 0.8
    model.save(tmp_path / "model")
    assert equal(carya.load(tmp_path / "model").predict(TEXTS[:9]), model.predict(TEXTS[:9]))
    S = carya.TextEnsemble.from_members([model, model]).predict(TEXTS[:9], top_k=3)
    assert np.array_equal(S.indices, model.predict(TEXTS[:9], top_k=3).indices)


def test_scores_of_selected_labels_with_a_learned_mixture(bert: Path) -> None:
    few = settings(bert, epochs=(1, 1), mixture="learned")
    model = carya.XRTransformer(**few).fit(TEXTS, LABELS, validation_data=tiny_encoders.make_corpus(120, seed=3))
    S = model.predict(TEXTS[:20], top_k=6)
    selected = model.predict_selected(TEXTS[:20], S)
    assert np.allclose(selected.toarray(), S.toarray(), rtol=1e-5)
    everything = model.predict_selected(TEXTS[:20], np.ones((20, 24)))
    assert np.allclose(everything.toarray()[S.toarray() > 0], S.toarray()[S.toarray() > 0], rtol=1e-5)
    assert np.allclose(everything.toarray().sum(1), 1, atol=1e-4)  # every label is a candidate of at least one ranker
    head = model.predict_selected(TEXTS[:20], S, using="head")
    expected = model.predict(TEXTS[:20], using="head", top_k=24).toarray() * (S.toarray() > 0)
    assert np.allclose(head.toarray(), expected, rtol=1e-5)


@pytest.mark.parametrize("mixture", ["learned", "weights"])
def test_ranking_within_labels(mixture: str, bert: Path) -> None:
    few = settings(bert, epochs=(1, 1), mixture=mixture)
    names = {"l07": "seven"}
    held_out = tiny_encoders.make_corpus(120, seed=3)
    model = carya.XRTransformer(**few).fit(TEXTS, LABELS, validation_data=held_out, names=names)
    labels = ["l03", "seven", "l11", "l20"]
    numbers = [3, 7, 11, 20]
    S = model.predict(TEXTS[:20], top_k=3, labels=labels)
    assert S.shape == (20, 24)
    assert np.diff(S.indptr).tolist() == [3] * 20
    pattern = np.zeros((20, 24))
    pattern[:, numbers] = 1
    scores = model.predict_selected(TEXTS[:20], pattern).toarray()
    for row in range(20):
        ranked = S.indices[S.indptr[row] : S.indptr[row + 1]]
        assert ranked.tolist() == [numbers[place] for place in np.argsort(-scores[row, numbers], kind="stable")[:3]]
        assert np.allclose(S.data[S.indptr[row] : S.indptr[row + 1]], scores[row, ranked])
    suggestions = model.suggest_all(TEXTS[:20], top_k=3, labels=labels)
    assert [[best.label for best in row] for row in suggestions] == [
        [model.labels_[label] for label in S.indices[begin : begin + 3]] for begin in S.indptr[:-1]
    ]
    one = model.suggest(TEXTS[4], top_k=3, labels=labels)
    assert [best.label for best in one] == [best.label for best in suggestions[4]]
    assert model.rank_texts(TEXTS[:2], top_k=1, labels=numbers)[1][0][0] == S.indices[3]
    head = model.predict(TEXTS[:20], top_k=1, labels=labels, using="head")
    assert set(head.indices) <= set(numbers)
    middle = float(np.median(S.data))
    assert (model.predict(TEXTS[:20], top_k=3, labels=labels, min_score=middle).data >= middle).all()
    assert model.predict([], labels=labels).shape == (0, 24)
    with pytest.raises(InputError, match="unknown"):
        model.suggest(TEXTS[0], labels=["unknown"])
    with pytest.raises(InputError, match="labels is empty"):
        model.suggest(TEXTS[0], labels=[])


def test_labels_that_no_ranker_suggests_do_not_change_other_scores() -> None:
    rng = np.random.default_rng(0)
    rankings = [sp.csr_array(np.where(rng.random((40, 30)) < 0.2, rng.random((40, 30)), 0)) for _ in range(2)]
    rankings = [sp.csr_array(S, dtype=np.float32) for S in rankings]
    suggested = all_candidates(rankings)
    truth = sp.csr_array(
        (np.ones(40), (np.arange(40), [S[0] for S in np.split(suggested.labels, suggested.offsets[1:-1])]))
    )
    truth.resize((40, 30))

    def scores(candidates: Any, is_suggested: Any = None) -> CandidateScores:
        values = {f"ranker {i}": candidates.lookup(*keys_and_scores(S)) for i, S in enumerate(rankings)}
        return CandidateScores(candidates, values, is_suggested)

    own = scores(suggested)
    mixture = Mixture.fit(own, own.relevance(truth), np.zeros(30, np.float32), seed=0)
    everything = all_candidates([sp.csr_array(np.ones((40, 30), np.float32))])
    is_suggested = np.isin(everything.keys, suggested.keys)
    assert not is_suggested.all()
    assert np.allclose(mixture.score(scores(everything, is_suggested))[is_suggested], mixture.score(own), rtol=1e-5)


def test_invalid_parameters_are_rejected(bert: Path) -> None:
    with pytest.raises(ParameterError, match=r"head_loss must be 'bce', .* got 'best'"):
        carya.XRTransformer(head_loss="best").fit(TEXTS, LABELS)
    with pytest.raises(ParameterError, match="beam_width must be an integer >= 1, got 0"):
        carya.XRTransformer(ranker=carya.XRLinear(beam_width=0)).fit(TEXTS, LABELS)
    with pytest.raises(UnknownParameterError, match=r"no parameter 'model_shortcut'\. Use encoder\."):
        carya.XRTransformer(model_shortcut="bert-base-uncased")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="max_length must be at most 64, the limit of the encoder, got 400"):
        carya.XRTransformer(**settings(bert, max_length=400)).fit(TEXTS, LABELS)
    with pytest.raises(InputError, match="device 'abacus' cannot be used"):
        carya.XRTransformer(**settings(bert, device="abacus")).fit(TEXTS, LABELS)
    with pytest.raises(InputError, match="must be small enough for at least two clusters"):
        carya.XTransformer(**settings(bert, matcher_leaf_size=100)).fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    ("texts", "labels", "validation_data", "message"),
    [
        ("w1", LABELS, None, "texts must be a list of strings, got a single str"),
        (["w1", 1], [["a"], ["b"]], None, "texts must be a list of strings, but item 1 has type int"),
        (TEXTS, LABELS[1:], None, "texts and labels must have the same length, got 260 and 259"),
        (["w1", "w2"], [[], []], None, "No text has a label"),
        (
            TEXTS,
            LABELS,
            np.array([1, 1]),
            "validation_data must contain some, but not all, of the text indices from 0 to 259, without duplicates",
        ),
        (TEXTS, LABELS, np.array([0.5]), "one-dimensional array of integers"),
        (TEXTS, LABELS, TEXTS, "validation_data must be a pair"),
        (
            TEXTS,
            LABELS,
            (["w1"], [["l00"], ["l01"]]),
            "The texts and labels in validation_data must have the same length, got 1 and 2",
        ),
        (TEXTS, LABELS, (["w1"], [["unknown"]]), "validation_data contains none of the training labels"),
        (["w1", "w2"], [["l00"], []], np.array([0]), "texts contains 2 texts, which is too few for a validation split"),
    ],
)
def test_invalid_training_data_is_rejected(
    texts: Any, labels: Any, validation_data: Any, message: str, bert: Path
) -> None:
    with pytest.raises(InputError, match=message):
        carya.XRTransformer(**settings(bert)).fit(texts, labels, validation_data=validation_data)


def test_sample_weights_are_refused(bert: Path) -> None:
    with pytest.raises(InputError, match=r"sample_weight is not supported by XRTransformer, .* cost_sensitive=True"):
        carya.XRTransformer(**settings(bert)).fit(TEXTS, LABELS, sample_weight=np.ones(260))  # type: ignore[arg-type]


def test_invalid_queries_are_rejected(model: carya.XRTransformer) -> None:
    with pytest.raises(NotFittedError, match="This XRTransformer is not fitted yet"):
        carya.XRTransformer().predict(["a"])
    with pytest.raises(
        InputError, match="using must be one of 'head', 'concatenated', 'linear', 'neighbors' or None, got 'tail'"
    ):
        model.predict(["w1"], using="tail")
    with pytest.raises(InputError, match="texts must be a list of strings, got a single str"):
        model.predict("w1")
    with pytest.raises(InputError, match="texts must be a list of strings, but item 0 has type int"):
        model.encode([1])
    with pytest.raises(InputError, match=r"text must be a string, got list\. Use suggest_all"):
        model.suggest(["w1"])  # type: ignore[arg-type]


def test_models_can_be_imported_without_torch() -> None:
    code = "import sys, carya; carya.XRTransformer(); carya.XTransformer(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "safetensors"} & set(done.stdout.split())


@pytest.mark.parametrize("package", ["torch", "transformers", "safetensors"])
def test_the_error_for_a_missing_package_names_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"XRTransformer requires {package}. Install it with: pip install 'carya\[transformer\]'"
    with pytest.raises(MissingExtraError, match=message):
        carya.XRTransformer().fit(TEXTS, LABELS)


def test_command_line(bert: Path, tmp_path: Path) -> None:
    from carya.cli.app import app

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, arguments)

    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    data, out = str(tmp_path / "data.jsonl"), str(tmp_path / "model")
    flags = ["--encoder", str(bert), "--epochs", "1,2", "--max-length", "32", "--min-df", "1", "--no-refit"]
    result = run("train", data, "-o", out, "--model", "xr-transformer", "--max-leaf-size", "8", *flags)
    assert result.exit_code == 0, result.output
    assert carya.load(out).rankers_["linear"].max_leaf_size == 8
    result = run("evaluate", out, data, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["P@1"] > 0.8
    result = run("inspect", out, "--json")
    assert sum(json.loads(result.stdout)["mixture"].values()) == pytest.approx(1)
    assert run("inspect", out).exit_code == 0
    (tmp_path / "texts.txt").write_text("w0 w1 w2\nw7 w8\n")
    result = run("predict", out, str(tmp_path / "texts.txt"), "--top-k", "2")
    assert [len(json.loads(line)["labels"]) for line in result.stdout.splitlines()] == [2, 2]
    message = str(run("train", data, "-o", out, "--epochs", "1,2").exception)
    assert "--epochs" in message
    assert "xr-transformer or x-transformer" in message
    message = str(run("train", data, "-o", out, "--model", "xt").exception)
    assert "--model" in message
    assert "'xt'" in message
