from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import settings

import carya
from carya.data import World, generate

settings.register_profile("carya", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("carya")


@pytest.fixture(scope="session")
def world() -> World:
    """A small world with three levels of structure to find."""
    return generate(1500, 150, labels_per_row=2.5, features_per_row=30, seed=3)


@pytest.fixture(scope="session")
def model(world: World) -> carya.XRLinear:
    """A model of that world with inner layers; not to be changed."""
    return carya.XRLinear(branching=4, max_leaf=8, n_jobs=2).fit(world.X, world.Y)


@pytest.fixture(scope="session")
def pair(world: World) -> tuple[sp.csr_array, np.ndarray]:
    """The world's features with a dense block beside them."""
    rng = np.random.default_rng(0)
    dense = world.X @ rng.standard_normal((world.X.shape[1], 16))
    return world.X, (dense / np.linalg.norm(dense, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="session")
def saved_model(model: carya.XRLinear, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("store") / "model"
    model.save(place)
    return place
