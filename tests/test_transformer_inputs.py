"""Tests for transformer models with user-supplied features, label trees and label features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.errors import InputError

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

import tiny_encoders

pytestmark = pytest.mark.transformer
torch.set_num_threads(1)  # more threads would not speed up these tiny tensors, but would slow down concurrent tests
TEXTS, LABELS = tiny_encoders.make_corpus(160)
NEW_TEXTS, NEW_LABELS = tiny_encoders.make_corpus(40, seed=5)
IDS = [f"l{label:02d}" for label in range(tiny_encoders.N_LABELS)]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoders.save_encoder("bert", tmp_path_factory.mktemp("bert"))


def make(name: str, bert: Path, **changes: Any) -> Any:
    parameters = {
        "encoder": str(bert),
        "pooling": "mean",
        "max_length": 32,
        "epochs": 1,
        "batch_tokens": 256,
        "matcher_branching": 4,
        "matcher_leaf_size": 6,
        "vectorizer": carya.Tfidf(min_df=1, n_jobs=1),
        "ranker": carya.XRLinear(max_leaf_size=8, n_jobs=1),
        "refit": False,
        "n_jobs": 1,
        "device": "cpu",
    }
    return getattr(carya, name)(**parameters | changes)


def indicator(labels: list[list[str]]) -> sp.csr_array:
    """Return features that reveal the labels of each text."""
    return sp.csr_array([[float(label in row) for label in IDS] for row in labels], dtype=np.float32)


def same(first: sp.csr_array, second: sp.csr_array) -> bool:
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in ("indptr", "indices", "data"))


FEATURES: dict[str, Any] = {
    "sparse": indicator(LABELS),
    "dense": indicator(LABELS).toarray(),
    "pair": (indicator(LABELS)[:, :10], indicator(LABELS).toarray()[:, 10:]),
}


def take(features: Any, rows: slice) -> Any:
    return (features[0][rows], features[1][rows]) if isinstance(features, tuple) else features[rows]


@pytest.mark.filterwarnings("ignore::carya.errors.FewTermsWarning")  # the texts have one word each
@pytest.mark.parametrize("form", FEATURES)
@pytest.mark.parametrize("use_tfidf", [True, False], ids=["beside TF-IDF", "instead of TF-IDF"])
@pytest.mark.parametrize("name", ["XRTransformer", "XTransformer"])
def test_own_features(name: str, use_tfidf: bool, form: str, bert: Path, tmp_path: Path) -> None:
    features = FEATURES[form]
    texts = ["w0" for _ in TEXTS]  # only the features reveal the labels
    vectorizer = carya.Tfidf(min_df=1, n_jobs=1)
    model = make(name, bert, use_tfidf=use_tfidf, vectorizer=vectorizer).fit(texts, LABELS, features=features)
    assert model.predict(texts, using="linear", features=features, top_k=1).shape == (160, 24)
    Y = model.label_matrix(LABELS)
    assert carya.metrics.precision(Y, model.predict(texts, using="linear", top_k=1, features=features), k=1) > 0.95
    assert (model.vectorizer_ is None) == (not use_tfidf)
    one = model.suggest("w0", top_k=2, features=take(features, slice(3, 4)))
    assert [best.label for best in one] == [
        best.label for best in model.suggest_all(texts, top_k=2, features=features)[3]
    ]
    assert model.score(texts, LABELS, features=features) > 0.5
    selected = model.predict_selected(["w0"], np.ones((1, 24)), using="linear", features=take(features, slice(3, 4)))
    assert set(selected.indices[np.argsort(-selected.data)][: len(LABELS[3])]) == {
        IDS.index(label) for label in LABELS[3]
    }
    model.calibrate(texts, LABELS, features=features)
    assert model.rank_texts(["w0"], top_k=1, features=take(features, slice(3, 4)))[0][0][0] == IDS.index(one[0].label)
    within = model.suggest("w0", labels=["l02", "l05"], features=take(features, slice(3, 4)))
    assert {best.label for best in within} == {"l02", "l05"}
    model.save(tmp_path / "model")
    loaded = carya.load(tmp_path / "model")
    assert loaded.calibration_ is not None
    assert same(
        loaded.predict(texts[:9], features=take(features, slice(0, 9))),
        model.predict(texts[:9], features=take(features, slice(0, 9))),
    )
    assert loaded.feature_widths_ == {"sparse": (24, 0), "dense": (0, 24), "pair": (10, 14)}[form]
    assert loaded.trees_ == ()
    with pytest.raises(InputError, match=r"trained with user-supplied features \(.*\), so it requires the features"):
        loaded.suggest("w0")
    with pytest.raises(InputError, match=r"because it has no label tree that uses terms as features"):
        loaded.explain("w0", "l00", tree=0)


def test_validation_data_with_features(bert: Path) -> None:
    features, new = indicator(LABELS), indicator(NEW_LABELS)
    model = make("XRTransformer", bert)
    model.fit(TEXTS, LABELS, features=features, validation_data=(NEW_TEXTS, NEW_LABELS, new))
    assert model.validation_scores_["linear"]["P@1"] > 0.9
    with pytest.raises(InputError, match="The model was trained with user-supplied features"):
        model.fit(TEXTS, LABELS, features=features, validation_data=(NEW_TEXTS, NEW_LABELS))
    refitted = make("XRTransformer", bert, refit=True, fine_tune=False).fit(TEXTS, LABELS, features=features)
    assert refitted.score(NEW_TEXTS, NEW_LABELS, features=new) > 0.8


def test_invalid_features_are_rejected(bert: Path) -> None:
    model = make("XRTransformer", bert, fine_tune=False)
    with pytest.raises(InputError, match="texts and features must have the same length, got 160 and 3"):
        model.fit(TEXTS, LABELS, features=np.ones((3, 2)))
    with pytest.raises(InputError, match=r"features is missing\. It is required with use_tfidf=False"):
        make("XRTransformer", bert, use_tfidf=False).fit(TEXTS, LABELS)
    model.fit(TEXTS, LABELS)
    with pytest.raises(InputError, match="was trained without user-supplied features"):
        model.predict(TEXTS[:2], features=np.ones((2, 2)))
    model.fit(TEXTS, LABELS, features=indicator(LABELS))
    with pytest.raises(InputError, match="features has 3 columns, but must have 24, as in training"):
        model.predict(TEXTS[:2], features=np.ones((2, 3)))


def test_models_with_own_features_are_not_served(bert: Path, tmp_path: Path) -> None:
    from carya.serve.registry import ModelRegistry

    model = make("XRTransformer", bert, fine_tune=False).fit(TEXTS, LABELS, features=indicator(LABELS))
    model.save(tmp_path / "model")
    with pytest.raises(InputError, match="was trained with user-supplied features, which requests do not contain"):
        ModelRegistry.open({"m": tmp_path / "model"})
    with pytest.raises(InputError, match="was trained with user-supplied features, so it cannot be combined"):
        carya.TextEnsemble.from_members([model])


@pytest.mark.parametrize("name", ["XRTransformer", "XTransformer"])
def test_own_label_tree(name: str, bert: Path, tmp_path: Path) -> None:
    clusters = np.arange(24, dtype=np.int32) % 3  # not a tree that clustering would build
    tree = carya.LabelTree([np.zeros(3, np.int32), clusters])
    model = make(name, bert, tree=tree).fit(TEXTS, LABELS)
    for ranker in ("concatenated", "linear"):
        assert np.array_equal(model.rankers_[ranker].tree_.parents[-1], clusters)
    model.save(tmp_path / "model")
    assert same(carya.load(tmp_path / "model").predict(TEXTS[:9]), model.predict(TEXTS[:9]))
    own = make(name, bert, tree=tree, ranker=carya.XRLinear(tree=carya.LabelTree.flat(24), n_jobs=1)).fit(TEXTS, LABELS)
    assert own.rankers_["linear"].tree_.depth == 1
    with pytest.raises(InputError, match="The tree has 2 labels, but the training data has 24"):
        make(name, bert, tree=carya.LabelTree.flat(2)).fit(TEXTS, LABELS)
    leaves = np.sort(np.append(np.arange(24), 0)).astype(np.int32)
    overlapping = carya.LabelTree([np.zeros(2, np.int32), np.arange(25) % 2], leaf_labels=leaves)
    with pytest.raises(InputError, match="tree must have one leaf per label to train an encoder"):
        make(name, bert, tree=overlapping).fit(TEXTS, LABELS)


def test_x_transformer_requires_clusters_in_its_tree(bert: Path) -> None:
    with pytest.raises(InputError, match="tree must have at least one level of clusters above the labels"):
        make("XTransformer", bert, tree=carya.LabelTree.flat(24)).fit(TEXTS, LABELS)


def halves(labels: np.ndarray, model: Any, ranker: str) -> bool:
    """Return whether each cluster at the first level of a ranker's tree contains labels of only one half."""
    clusters = model.rankers_[ranker].tree_.clusters(1)
    return all(len({int(half) for half in labels[clusters == cluster]}) == 1 for cluster in set(clusters.tolist()))


def test_label_features_determine_the_tree(bert: Path) -> None:
    half = np.arange(24) % 2  # the texts contain no information about this partition
    label_features = np.eye(2, dtype=np.float32)[half] + np.float32(0.01)
    ranker = carya.XRLinear(representation="lf", branching=2, max_leaf_size=12, n_jobs=1)
    model = make("XRTransformer", bert, ranker=ranker, matcher_representation="lf", matcher_leaf_size=12)
    model.fit(TEXTS, LABELS, label_features=label_features)
    assert halves(half, model, "linear")
    assert halves(half, model, "concatenated")
    without = make("XRTransformer", bert, ranker=ranker.clone(representation="pifa")).fit(TEXTS, LABELS)
    assert not halves(half, without, "linear")


@pytest.mark.parametrize("representation", ["lf", "pifa+lf", "pifa-concat-lf"])
def test_label_texts_are_label_features(representation: str, bert: Path) -> None:
    ranker = carya.XRLinear(representation=representation, branching=2, max_leaf_size=12, n_jobs=1)
    label_texts = {label: f"w{5 * number} w{5 * number + 1}" for number, label in enumerate(IDS)}
    model = make("XRTransformer", bert, ranker=ranker, matcher_representation=representation)
    model.fit(TEXTS, LABELS, label_texts=label_texts, features=indicator(LABELS))
    assert model.score(TEXTS, LABELS, features=indicator(LABELS)) > 0.5
    with pytest.raises(InputError, match=r"built from label features\. Pass label_texts or label_features"):
        model.clone().fit(TEXTS, LABELS)


def test_unused_label_features_are_rejected(bert: Path) -> None:
    with pytest.raises(InputError, match="label_features is not used by the label trees of this model"):
        make("XRTransformer", bert).fit(TEXTS, LABELS, label_features=np.ones((24, 2)))
    lf = make("XRTransformer", bert, matcher_representation="lf")
    with pytest.raises(InputError, match=r"label_features must have one row per label \(24\), got 3 rows"):
        lf.fit(TEXTS, LABELS, label_features=np.ones((3, 2)))
