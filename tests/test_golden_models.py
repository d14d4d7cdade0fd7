"""Tests for backward compatibility: models saved by earlier versions load and return the same rankings."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from golden_models import ANSWERS, GOLDEN, load, model_names
from matrix_helpers import ranking_of


@pytest.mark.parametrize("name", model_names(ANSWERS))
def test_saved_model_returns_the_stored_rankings(name: str) -> None:
    model, expected = load(name), ANSWERS[name]
    if "texts" in expected:
        rankings = [
            [(suggestion.label, suggestion.score) for suggestion in suggestions]
            for suggestions in model.suggest_all(expected["texts"], top_k=4)
        ]
    else:
        with np.load(GOLDEN / "queries.npz") as arrays:
            shape = tuple(arrays["shape"])
            sparse = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
            S = model.predict(arrays["dense"] if name == "neighbors-graph" else sparse, top_k=4)
        rankings = [ranking_of(S, row) for row in range(5)]
    # The instruction set changes the last bits of embeddings, and these decide which of several equally near texts are
    # neighbors. Random changes of 1e-8 in the embeddings change scores by up to 2e-3.
    relative, absolute = (0.0, 5e-3) if name == "xr-transformer" else (1e-4, 1e-5)
    for ranking, stored in zip(rankings, expected["rankings"], strict=True):
        assert [label for label, _ in ranking] == [label for label, _ in stored]
        assert [score for _, score in ranking] == pytest.approx(
            [score for _, score in stored], rel=relative, abs=absolute
        )


@pytest.mark.parametrize("name", model_names(name for name in ANSWERS if "texts" in ANSWERS[name]))
def test_saved_models_keep_the_tokenizer_of_their_version(name: str) -> None:
    """Models without the parameter `tokenizer` were trained with scikit-learn's rules, which split words at marks."""
    vectorizer = load(name).vectorizer_
    text = "A\u0308rger हिन्दी 機器學習"
    fitted = vectorizer.clone(min_df=1, analyzer="word", ngram_range=(1, 1)).fit([text])
    assert fitted.get_feature_names_out().tolist() == ["rger", "機器學習"]
