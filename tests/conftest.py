"""Fixtures shared by several test files."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import settings

import carya
from carya.data import SyntheticData, generate_data

# The server does not support Windows.
SERVER_TESTS = ["test_cli_serve.py", "test_serve*.py", "test_explorer*.py", "test_deployment.py"]
collect_ignore_glob = SERVER_TESTS if sys.platform == "win32" else []

settings.register_profile("carya", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("carya")


@pytest.fixture(scope="session")
def world() -> SyntheticData:
    """Synthetic data with 1500 rows and 150 labels that are related by topic."""
    return generate_data(1500, 150, labels_per_row=2.5, features_per_row=30, seed=3)


@pytest.fixture(scope="session")
def model(world: SyntheticData) -> carya.XRLinear:
    """A fitted model with several layers; tests must not modify it."""
    return carya.XRLinear(branching=4, max_leaf_size=8, n_jobs=2).fit(world.X, world.Y)


@pytest.fixture(scope="session")
def pair(world: SyntheticData) -> tuple[sp.csr_array, np.ndarray]:
    """The sparse features of `world`, and their random projection to 16 dense features with rows of unit length."""
    rng = np.random.default_rng(0)
    dense = world.X @ rng.standard_normal((world.X.shape[1], 16))
    return world.X, (dense / np.linalg.norm(dense, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="session")
def saved_model(model: carya.XRLinear, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that contains the saved `model`; tests must not modify it."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    model.save(folder)
    return folder
