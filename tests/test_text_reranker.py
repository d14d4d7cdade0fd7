"""Tests for reranked text models and cross-encoders, with tiny encoders on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import carya
from carya.errors import InputError, ModelFormatError, NotFittedError, ParameterError
from carya.ranking import AveragedRanker, NeuralRanker, Pairs
from carya.ranking.pairs import PairTexts
from carya.text.combined.text_reranker import FEATURE_NAMES, candidate_pairs

from topics import corpus

TEXTS, LABELS = corpus(240)
TEXT = "the telescope shows a planet and its moon"


def base() -> carya.TextRanker:
    return carya.TextRanker(carya.Tfidf(min_df=1, n_jobs=1), carya.XRLinear(max_leaf_size=8, n_jobs=1))


@pytest.fixture(scope="module")
def model() -> carya.TextReranker:
    return carya.TextReranker(base(), NeuralRanker(epochs=40, batch_size=8)).fit(TEXTS, LABELS)


def test_candidates_are_those_of_the_base_model(model: carya.TextReranker) -> None:
    pairs, candidates = candidate_pairs(model.base_, TEXTS[:5], 20)
    assert pairs.names == FEATURE_NAMES
    assert pairs.texts is not None
    assert list(pairs.texts.queries) == TEXTS[:5]
    for row in range(5):
        expected = {model.labels_.index(best.label) for best in model.base_.suggest(TEXTS[row], top_k=20)}
        assert set(candidates.labels[candidates.offsets[row] : candidates.offsets[row + 1]].tolist()) == expected
    S = model.predict(TEXTS[:5], top_k=20)
    assert np.allclose(np.add.reduceat(S.data, S.indptr[:-1]), 1, atol=1e-5)
    assert model.score(TEXTS, LABELS) > 0.9


def test_groups_are_held_out_together(model: carya.TextReranker) -> None:
    groups = np.repeat(np.arange(24), 10)
    held_out = model._held_out_rows(240, groups)
    assert set(np.bincount(groups[held_out], minlength=24)) == {0, 10}
    assert held_out.size == 50  # 48 texts, rounded up to whole groups
    with pytest.raises(InputError, match=r"groups must have shape \(240,\), one entry per text, got \(3,\)"):
        model._held_out_rows(240, [1, 2, 3])
    with pytest.raises(InputError, match=r"too few texts \(240\) or groups \(1\) to hold out"):
        model._held_out_rows(240, np.zeros(240, int))


def test_invalid_parameters_are_rejected() -> None:
    with pytest.raises(ParameterError, match=r"base has type XRLinear, which accepts feature matrices.* TextRanker\("):
        carya.TextReranker(carya.XRLinear()).fit(TEXTS, LABELS)
    with pytest.raises(ParameterError, match="ranker must be a Ranker"):
        carya.TextReranker(base(), "best").fit(TEXTS, LABELS)
    with pytest.raises(ParameterError, match=r"reads texts, but Reranked models accept only features"):
        carya.Reranked(ranker=carya.CrossEncoderRanker()).check_parameters()
    with pytest.raises(ParameterError, match=r"reads texts, but Reranked models accept only features"):
        carya.Reranked(ranker=AveragedRanker([carya.CrossEncoderRanker()])).check_parameters()
    with pytest.raises(InputError, match="retrieves no relevant label for any held-out text"):
        carya.TextReranker(base(), validation_fraction=0.5).fit(["red one", "blue two"], [["c"], ["d"]])


def test_forged_models_are_rejected(model: carya.TextReranker) -> None:
    from dataclasses import replace

    saved = model.to_saved()
    changes: list[dict[str, Any]] = [
        {"kinds": [], "members": []},
        {"ranker": {"name": "unknown", "parameters": {}}},
        {"n_candidates": 0},
    ]
    for change in changes:
        with pytest.raises(ModelFormatError):
            carya.TextReranker.from_saved(replace(saved, parameters=saved.parameters | change))
    assert carya.TextReranker.from_saved(saved).suggest(TEXT) == model.suggest(TEXT)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("transformers")
    import torch

    import tiny_encoders

    torch.set_num_threads(1)
    return str(tiny_encoders.save_encoder("bert", tmp_path_factory.mktemp("bert")))


@pytest.mark.transformer
class TestCrossEncoder:
    """Cross-encoders based on tiny encoders with random weights."""

    @pytest.fixture(autouse=True)
    def without_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Load saved models on the CPU, where they are trained, because scores on a GPU are rounded differently."""
        torch = pytest.importorskip("torch")
        distributed = pytest.importorskip("carya.transformer.training.distributed")
        monkeypatch.setattr(distributed, "local_device", lambda: torch.device("cpu"))

    @staticmethod
    def ranker(encoder: str, **changes: Any) -> carya.CrossEncoderRanker:
        parameters: dict[str, Any] = {"max_length": 32, "learning_rate": 5e-3, "epochs": 6, "device": "cpu"}
        return carya.CrossEncoderRanker(encoder=encoder, **parameters | changes)

    @staticmethod
    def pairs(n_queries: int, seed: int = 0) -> tuple[Pairs, np.ndarray]:
        """Return (text, label) pairs and their relevance; the kind of a text determines its relevant label."""
        rng = np.random.default_rng(seed)
        kinds = rng.integers(2, size=n_queries)
        labels, relevance = [], []
        for kind in kinds:
            relevant = 2 + 4 * kind + rng.choice(4, 1)
            others = 2 + 4 * (1 - kind) + rng.choice(4, 3, replace=False)
            labels.append(np.sort(np.concatenate([relevant, others])))
            relevance.append(np.isin(labels[-1], relevant))
        names = [f"w{number}" for number in range(10)]
        texts = PairTexts(
            [f"w{kind} w{kind} w{kind}" for kind in kinds], names, np.concatenate(labels).astype(np.int32)
        )
        offsets = np.arange(n_queries + 1) * 4
        pairs = Pairs(np.zeros((4 * n_queries, 1), np.float32), ("none",), offsets, texts)
        return pairs, np.concatenate(relevance).astype(np.float32)

    @pytest.mark.parametrize("loss", ["listwise", "pointwise"])
    def test_training_ranks_relevant_names_first(self, encoder: str, loss: str) -> None:
        pairs, relevance = self.pairs(240)
        new, truth = self.pairs(60, seed=1)
        ranker = self.ranker(encoder, loss=loss).fit(pairs, relevance)
        assert ranker.losses_[-1] < ranker.losses_[0]
        best = ranker.score(new).reshape(-1, 4).argmax(1)
        assert (best == truth.reshape(-1, 4).argmax(1)).mean() > 0.9

    def test_scores_do_not_depend_on_the_batch_size(self, encoder: str) -> None:
        pairs, relevance = self.pairs(40)
        ranker = self.ranker(encoder, epochs=1).fit(pairs, relevance)
        again = self.ranker(encoder, epochs=1).fit(pairs, relevance)
        scores = ranker.score(pairs)
        assert np.array_equal(again.score(pairs), scores)
        assert np.allclose(ranker.set_params(score_batch_size=3).score(pairs), scores, atol=1e-5)

    def test_reranked_text_model(self, encoder: str, tmp_path: Path) -> None:
        import torch

        import tiny_encoders

        texts, labels = tiny_encoders.make_corpus(120)
        names = {f"l{label:02d}": f"w{5 * label} w{5 * label + 1}" for label in range(24)}
        ranker = AveragedRanker([self.ranker(encoder, epochs=1), NeuralRanker(epochs=60, batch_size=4)])
        model = carya.TextReranker(base(), ranker, n_candidates=6).fit(texts, labels, names=names)
        assert model.score(texts, labels) > 0.5
        state = torch.random.get_rng_state()
        model.save(tmp_path / "model")
        files = {
            path.relative_to(tmp_path / "model").as_posix()
            for path in (tmp_path / "model").rglob("*")
            if path.is_file()
        }
        assert "ranker/0/model.safetensors" in files
        assert not [name for name in files if name.endswith((".bin", ".pt", ".pkl", ".py")) and name != "arrays.bin"]
        loaded = carya.load(tmp_path / "model")
        assert loaded.suggest_all(texts[:9]) == model.suggest_all(texts[:9])
        assert torch.equal(torch.random.get_rng_state(), state)
        weights = tmp_path / "model" / "ranker" / "0" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"x")
        with pytest.raises(ModelFormatError, match="damaged"):
            carya.load(tmp_path / "model")

    def test_served_model(self, encoder: str, tmp_path: Path) -> None:
        from carya.serve.app import create_app
        from carya.serve.settings import ServerSettings

        from serving import Client

        model = carya.TextReranker(base(), self.ranker(encoder, epochs=1), n_candidates=5).fit(TEXTS[:60], LABELS[:60])
        model.save(tmp_path / "model")
        with Client(create_app({"m": tmp_path / "model"}, ServerSettings(log_level="error"))) as client:
            responses = client.post_all("/v1/suggest", [{"text": TEXT, "top_k": 3}] * 8)
            info = client.get("/v1/model").json()
        expected = [best.label for best in model.suggest(TEXT, top_k=3)]
        for response in responses:
            assert [best["label"] for best in response.json()["results"][0]["suggestions"]] == expected
        assert (info["kind"], info["n_trees"]) == ("TextReranker", 1)

    @pytest.mark.parametrize("architecture", ["roberta", "distilbert", "modernbert", "xlnet", "gpt2"])
    def test_sequence_classification_models(self, architecture: str, tmp_path: Path) -> None:
        """Any architecture works; a classification layer with a different number of outputs is replaced."""
        transformers = pytest.importorskip("transformers")
        import tiny_encoders

        name = "bert" if architecture == "gpt2" else architecture
        tiny_encoders.save_encoder(name, tmp_path / "encoder")
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "encoder")
        if architecture == "gpt2":  # a decoder, whose tokenizer has no padding token
            size = tiny_encoders.VOCABULARY_SIZE
            config = transformers.GPT2Config(
                vocab_size=size, n_positions=80, n_embd=32, n_layer=2, n_head=2, bos_token_id=2, eos_token_id=3
            )
            tokenizer.eos_token, tokenizer.pad_token = "[SEP]", None
        else:
            config = transformers.AutoConfig.from_pretrained(tmp_path / "encoder")
        tokenizer.save_pretrained(tmp_path / "encoder")
        config.num_labels = 3
        classifier = transformers.AutoModelForSequenceClassification.from_config(config)
        classifier.save_pretrained(tmp_path / "encoder")
        texts, labels = TEXTS[:60], LABELS[:60]
        ranker = self.ranker(str(tmp_path / "encoder"), epochs=1)
        model = carya.TextReranker(base(), ranker, n_candidates=5).fit(texts, labels)
        model.save(tmp_path / "model")
        loaded = carya.load(tmp_path / "model")
        assert loaded.suggest_all(texts[:9]) == model.suggest_all(texts[:9])
        one_by_one = [loaded.suggest(text) for text in texts[:9]]  # padding does not change scores
        assert [[best.score for best in row] for row in one_by_one] == [
            pytest.approx([best.score for best in row], abs=1e-5) for row in model.suggest_all(texts[:9])
        ]

    def test_a_saved_model_without_its_files_is_rejected(self, model: carya.TextReranker) -> None:
        pytest.importorskip("torch")
        from dataclasses import replace

        saved = model.to_saved()
        change = {"ranker": {"name": "cross-encoder", "parameters": {"parameters": {}}}}
        with pytest.raises(ModelFormatError, match="The model files of the cross-encoder are missing"):
            carya.TextReranker.from_saved(replace(saved, parameters=saved.parameters | change))

    def test_inspect(self, encoder: str, tmp_path: Path) -> None:
        from click.testing import CliRunner

        from carya.cli.app import app

        carya.TextReranker(base(), self.ranker(encoder, epochs=1), n_candidates=3).fit(TEXTS, LABELS).save(
            tmp_path / "m"
        )
        result = CliRunner().invoke(app, ["inspect", str(tmp_path / "m"), "--json"])
        assert json.loads(result.stdout)["ranker"] == "cross-encoder"

    def test_invalid_input(self, encoder: str) -> None:
        pairs, relevance = self.pairs(5)
        with pytest.raises(NotFittedError, match="This CrossEncoderRanker is not fitted yet"):
            self.ranker(encoder).score(pairs)
        without = Pairs(pairs.values, pairs.names, pairs.offsets)
        with pytest.raises(InputError, match=r"requires the texts of the pairs, .* Use it in carya\.TextReranker"):
            self.ranker(encoder).fit(without, relevance)
        with pytest.raises(InputError, match="max_length must be at most 64, the limit of the encoder, got 200"):
            self.ranker(encoder, max_length=200).fit(pairs, relevance)
        with pytest.raises(InputError, match="encoder '/nowhere' cannot be loaded"):
            self.ranker("/nowhere").fit(pairs, relevance)
        with pytest.raises(ParameterError, match="loss must be 'listwise' or 'pointwise', got 'best'"):
            self.ranker(encoder, loss="best").fit(pairs, relevance)
        with pytest.raises(InputError, match="device 'abacus' cannot be used"):
            self.ranker(encoder, device="abacus").fit(pairs, relevance)
