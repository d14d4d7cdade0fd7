"""Tests for the explorer: its routes and, if a browser is installed, its web page."""

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn

import carya
from carya.models.interface import Model
from carya.ranking import NeuralRanker
from carya.serve.app import create_app
from carya.serve.registry import ModelRegistry
from carya.serve.routes.pages import EXPLORER_FOLDER
from carya.serve.settings import ServerSettings
from carya.text.explore.explorer import Explorer

from serving import Client
from topics import TOPICS, corpus, overlapping_tree

TEXT = "The rook takes a pawn; the queen gives check 𝄞 near the harbor, zyzzyva"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A calibrated model with one cluster per topic, and an uncalibrated model whose only labels are the topics."""
    folder = tmp_path_factory.mktemp("models")
    texts, labels = corpus(400)
    ids = sorted({label for row in labels for label in row})
    tree = carya.LabelTree.from_paths([label.partition("/")[0] for label in ids])
    names = {topic: topic.title() for topic in TOPICS}
    ranker = carya.TextRanker(None, carya.XRLinear(tree=tree)).fit(texts, labels, names=names)
    ranker.calibrate(*corpus(200, seed=1)).save(folder / "topics")
    topics = [[label for label in row if "/" not in label] for row in labels]
    carya.TextRanker(None, carya.XRLinear(max_leaf_size=2, branching=2)).fit(texts, topics).save(folder / "coarse")
    return {"topics": folder / "topics", "coarse": folder / "coarse"}


@pytest.fixture(scope="module")
def rankers(folders: dict[str, Path]) -> dict[str, carya.TextRanker]:
    return {name: carya.load(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def other_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models that are not single trees, a tree with overlapping clusters, and a tree with two kinds of transforms."""
    folder = tmp_path_factory.mktemp("others")
    texts, labels = corpus(200)
    base = carya.XRLinear(max_leaf_size=6, branching=2)
    models: dict[str, Model] = {
        "ensemble": carya.Ensemble(base, n_trees=3),
        "neighbors": carya.NearestNeighbors(),
        "votes": carya.NearestNeighbors(over="rows", n_neighbors=3),
        "reranked": carya.Reranked(base, NeuralRanker()),
        "overlapping": carya.XRLinear(tree=overlapping_tree(sorted({label for row in labels for label in row}))),
        "mixed": carya.XRLinear(max_leaf_size=6, transform=("l3-hinge", "log-sigmoid")),
    }
    for name, model in models.items():
        ranker = carya.TextRanker(None, model).fit(texts, labels)
        if name in ("neighbors", "overlapping"):
            ranker.calibrate(*corpus(100, seed=1))
        ranker.save(folder / name)
    return {name: folder / name for name in models}


def new_client(models: dict[str, Path] | ModelRegistry) -> Client:
    return Client(create_app(models, ServerSettings(log_level="error")))


@pytest.fixture(scope="module")
def client(folders: dict[str, Path]) -> Iterator[Client]:
    with new_client(folders) as client:
        yield client


def test_models(client: Client, rankers: dict[str, carya.TextRanker]) -> None:
    response = client.get("/v1/explore/models").json()
    assert response["default"] == "topics"
    first, second = response["models"]
    assert first == {
        "name": "topics",
        "kind": "XRLinear",
        "n_labels": len(rankers["topics"].labels_),
        "n_terms": rankers["topics"].vectorizer_.n_features_,
        "n_texts": 400,
        "trees": [{"level_sizes": [4], "beam_width": 10, "is_overlapping": False, "is_explainable": True}],
        "is_calibrated": True,
    }
    assert (second["name"], second["is_calibrated"]) == ("coarse", False)


def test_responses_equal_the_results_of_the_explorer(client: Client, rankers: dict[str, carya.TextRanker]) -> None:
    explorer, other = Explorer(rankers["topics"]), Explorer(rankers["coarse"])
    trace = client.post("/v1/explore/text", {"text": TEXT, "top_k": 5}).json()
    assert [(scored["label"]["label"], scored["score"]) for scored in trace["labels"]] == [
        (suggestion.label, suggestion.score) for suggestion in explorer.ranker.suggest(TEXT, top_k=5)
    ]
    assert all(0 < scored["probability"] < 1 for scored in trace["labels"])
    assert [[node["cluster"]["node"] for node in level] for level in trace["levels"]] == [
        [node.cluster.node for node in level] for level in explorer.search(TEXT).levels
    ]
    uncalibrated = client.post("/v1/explore/text?model=coarse", {"text": TEXT}).json()
    assert uncalibrated["labels"][0]["probability"] is None
    explanation = client.post("/v1/explore/explain", {"text": TEXT, "label": "chess"}).json()
    expected = json.loads(json.dumps(explorer.ranker.explain(TEXT, "chess").to_dict()))
    for name in ("label", "name", "score", "log_scale", "base", "terms"):
        assert explanation[name] == expected[name]
    assert [level["terms"] for level in explanation["levels"]] == [level["terms"] for level in expected["levels"]]
    rows = client.post("/v1/explore/compare?model=topics&other=coarse", {"text": TEXT}).json()
    assert rows[0]["ranks"][0] == 1
    assert {row["label"]["label"]: row["scores"][1] is not None for row in rows}["chess"]
    page = client.get("/v1/explore/tree", params={"level": 1, "node": 2}).json()
    assert [label["label"] for label in page["labels"]] == [label.label for label in explorer.cluster_page(1, 2).labels]
    card = client.get("/v1/explore/label", params={"label": "Chess"}).json()
    assert card["label"]["label"] == "chess"
    (position,) = explorer.label_card("chess").positions
    assert card["positions"][0]["positive_terms"] == [list(term) for term in position.positive_terms]
    assert client.get("/v1/explore/tree?model=coarse").json()["n_children"] == other.cluster_page().n_children


def test_models_that_are_not_a_single_tree(other_folders: dict[str, Path]) -> None:
    with new_client(other_folders) as client:
        models = {model["name"]: model for model in client.get("/v1/explore/models").json()["models"]}
        assert {name: len(model["trees"]) for name, model in models.items()} == {
            "ensemble": 3,
            "neighbors": 0,
            "votes": 0,
            "reranked": 1,
            "overlapping": 1,
            "mixed": 1,
        }
        trees = [(name, tree) for name, model in models.items() for tree in model["trees"]]
        assert [name for name, tree in trees if tree["is_overlapping"]] == ["overlapping"]
        assert [name for name, tree in trees if not tree["is_explainable"]] == ["mixed"]
        for name, model in models.items():
            ranker = carya.load(other_folders[name])
            trace = client.post(f"/v1/explore/text?model={name}", {"text": TEXT, "top_k": 4}).json()
            assert [scored["label"]["label"] for scored in trace["labels"]] == [
                suggestion.label for suggestion in ranker.suggest(TEXT, top_k=4)
            ]
            card = client.get(f"/v1/explore/label?model={name}&label=chess").json()
            assert card["label"]["count"] == ranker.label_counts_[ranker.label_set_.number("chess")]
            for number, tree in enumerate(model["trees"]):
                page = client.get(f"/v1/explore/tree?model={name}&tree={number}").json()
                assert page["cluster"]["n_labels"] == len(ranker.labels_)
                message = {"text": TEXT, "label": "chess"}
                explanation = client.post(f"/v1/explore/explain?model={name}&tree={number}", message)
                assert explanation.status_code == (200 if tree["is_explainable"] else 400)
            if not model["trees"]:
                refused = client.get(f"/v1/explore/tree?model={name}")
                assert (refused.status_code, refused.json()["detail"]) == (
                    400,
                    "NearestNeighbors models have no label tree.",
                )
            rows = client.post(f"/v1/explore/compare?model={name}&other=votes", {"text": TEXT, "top_k": 3}).json()
            assert all(row["is_known"] == [True, True] for row in rows)


@pytest.mark.parametrize(
    ("path", "body", "status", "detail"),
    [
        ("/v1/explore/text?model=none", {"text": "a"}, 404, "Unknown model 'none'."),
        ("/v1/explore/text", {"text": 3}, 400, "The request body is invalid"),
        ("/v1/explore/text", {"text": "a", "topk": 3}, 400, "The request body is invalid"),
        ("/v1/explore/text", {"text": "a", "top_k": 0}, 400, "The request body is invalid"),
        ("/v1/explore/text", {"text": "a", "top_k": 10**6}, 400, "top_k must be at most 1000, got 1000000."),
        ("/v1/explore/text", {"text": "a" * 300_000}, 413, "A text can have at most 200000 characters, got 300000."),
        ("/v1/explore/explain", {"text": "a", "label": "ches"}, 404, "Unknown label 'ches'."),
        ("/v1/explore/compare?other=x", {"text": "a"}, 404, "Unknown model 'x'."),
        ("/v1/explore/tree?level=2", None, 400, "level must be between 0 and 1, got 2."),
        ("/v1/explore/tree?level=1&node=99", None, 400, "node must be between 0 and 3, got 99."),
        ("/v1/explore/tree?level=-1", None, 400, "level must be an integer between 0 and 1073741824, got '-1'."),
        ("/v1/explore/label", None, 404, "Unknown label ''."),
        ("/v1/explore/tree?tree=1", None, 400, "tree must be between 0 and 0, got 1."),
        ("/v1/explore/text?tree=1", {"text": "a"}, 400, "tree must be between 0 and 0, got 1."),
        ("/page/..%2fexplorer.py", None, 404, "Unknown path."),
        ("/page/%2e%2e%2fapp.py", None, 404, "Unknown path."),
        ("/page/none.js", None, 404, "Unknown path."),
    ],
)
def test_invalid_requests(client: Client, path: str, body: Any, status: int, detail: str) -> None:
    response = client.get(path) if body is None else client.post(path, body)
    assert response.status_code == status
    assert detail in response.json()["detail"]


def test_the_page_sends_no_requests_to_other_hosts(client: Client) -> None:
    index = client.get("/")
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    policy = index.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert client.get("/", headers={"If-None-Match": index.headers["etag"]}).status_code == 304
    for file in EXPLORER_FOLDER.iterdir():
        response = client.get(f"/page/{file.name}")
        assert response.status_code == 200
        assert response.headers["content-security-policy"] == policy
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//\w+\.\w+/|@import|url\(", text), file.name
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert unsafe not in text, (file.name, unsafe)
    for name in re.findall(r'(?:src|href)="(page/[^"]+)"', index.text):
        assert client.get("/" + name).status_code == 200
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", index.text)


def test_a_new_version_of_a_model_can_be_explored(folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(folders["coarse"], tmp_path / "model")
    registry = ModelRegistry.open({"model": tmp_path / "model"})
    with new_client(registry) as client:
        assert client.get("/v1/explore/tree").json()["cluster"]["n_labels"] == 4
        carya.load(folders["topics"]).save(tmp_path / "model")
        registry.refresh()
        assert client.get("/v1/explore/tree").json()["cluster"]["n_labels"] > 4


#: JavaScript function that returns all visible text with a contrast ratio below 4.5.
LOW_CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const parse = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const background = (element) => {
    const layers = [];
    for (let current = element; current; current = current.parentElement) {
      layers.unshift(parse(getComputedStyle(current).backgroundColor));
    }
    const blend = (below, [r, g, b, a]) => [r, g, b].map((v, channel) => v * a + below[channel] * (1 - a));
    return layers.reduce(blend, [255, 255, 255]);
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (!text || !element.checkVisibility() || element.closest('.hidden, .skip, noscript')) continue;
    const luminances = [luminance(parse(getComputedStyle(element).color)), luminance(background(element))];
    const ratio = (Math.max(...luminances) + 0.05) / (Math.min(...luminances) + 0.05);
    if (ratio < 4.5) low.push([text.slice(0, 30), element.className, ratio]);
  }
  return low;
}"""

#: JavaScript function that returns all visible, focusable elements that have no accessible name.
NAMELESS = """() => [...document.querySelectorAll('a, button, input, select, textarea, [tabindex], [role=listbox]')]
  .filter((element) => element.checkVisibility())
  .filter((element) => !element.labels?.length && !element.ariaLabel && !element.hasAttribute('aria-labelledby')
    && !element.textContent.trim())
  .map((element) => element.outerHTML)"""

#: JavaScript function that returns all values of aria-labelledby that refer to a nonexistent element.
BROKEN_LABELS = """() => [...document.querySelectorAll('[aria-labelledby]')]
  .map((element) => element.getAttribute('aria-labelledby')).filter((id) => !document.getElementById(id))"""


# ── Browser tests ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium browser; tests are skipped if Chromium or Playwright is not installed."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as context:
        browser = context.chromium.launch(executable_path=chromium)
        yield browser
        browser.close()


class Urls(NamedTuple):
    """URLs of the servers that the browser tests use."""

    public: str
    protected: str
    other_models: str


@pytest.fixture(scope="module")
def urls(folders: dict[str, Path], other_folders: dict[str, Path]) -> Iterator[Urls]:
    servers, threads, urls = [], [], []
    for tokens, models in ((None, folders), (("sesame",), folders), (None, other_folders)):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        urls.append(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        app = create_app(models, ServerSettings(log_level="error", tokens=tokens))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        servers.append(server)
        threads.append(thread)
    deadline = time.monotonic() + 30
    while not all(server.started for server in servers) and time.monotonic() < deadline:
        time.sleep(0.02)
    yield Urls(*urls)
    for server in servers:
        server.should_exit = True
    for thread in threads:
        thread.join(10)


@pytest.fixture
def page(browser: Any, urls: Urls) -> Iterator[Any]:
    """The explorer page of the server that serves the models "topics" and "coarse"."""
    yield from open_page(browser, urls.public, 2)


@pytest.fixture
def other_page(browser: Any, urls: Urls) -> Iterator[Any]:
    """The explorer page of the server that serves the models in `other_folders`."""
    yield from open_page(browser, urls.other_models, 6)


def open_page(browser: Any, url: str, n_models: int) -> Iterator[Any]:
    """Yield an open page; then check that the browser reported no problems and sent no requests to other hosts."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    problems: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type in ("error", "warning") else None)
    page.on("request", lambda request: requests.append(request.url))
    page.goto(url)
    wait_until(page, f"document.getElementById('model').options.length === {n_models}")
    yield page
    context.close()
    assert not problems
    assert all(request.startswith(url) for request in requests)


def wait_until(page: Any, condition: str) -> None:
    """Wait for a condition; Playwright's own method uses `eval`, which the page's Content-Security-Policy forbids."""
    deadline = time.monotonic() + 20
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        time.sleep(0.02)


def result_labels(page: Any) -> list[str]:
    return [option.get_attribute("data-label") for option in page.locator("#results [role=option]").all()]


def enter_text(page: Any, text: str) -> None:
    page.fill("#text", text)
    page.wait_for_selector("#results:not([hidden]):not([aria-busy]) [role=option][aria-selected=true]")
    page.wait_for_selector("#explanation .terms")


def active_id(page: Any) -> str:
    return str(page.evaluate("document.activeElement.id"))


def active_label(page: Any) -> str:
    return str(page.evaluate("document.activeElement.dataset.label"))


def test_results_follow_the_text(page: Any, rankers: dict[str, carya.TextRanker]) -> None:
    assert "labels and was trained on 400 texts." in page.inner_text("#status")
    enter_text(page, TEXT)
    expected = rankers["topics"].suggest(TEXT, top_k=12)
    assert result_labels(page) == [suggestion.label for suggestion in expected]
    first = page.locator("#results [role=option]").first
    assert expected[0].name in first.inner_text()
    probability = expected[0].probability
    assert probability is not None
    assert f"{round(100 * probability)}%" in first.inner_text()
    length = first.locator(".bar").evaluate("bar => bar.style.getPropertyValue('--length')")
    assert float(length.removesuffix("%")) == pytest.approx(100 * probability)
    assert "Bars show probabilities" in page.inner_text("#legend")
    page.fill("#text", "qqq zzz")
    wait_until(page, "document.getElementById('status').textContent.includes('no terms from')")
    assert result_labels(page) == []


def test_explanation_of_a_selected_label(page: Any, rankers: dict[str, carya.TextRanker]) -> None:
    enter_text(page, TEXT)
    page.click("#results [data-label=chess]")
    wait_until(page, "document.getElementById('explanation-title').textContent === 'Explanation for Chess'")
    explanation = rankers["topics"].explain(TEXT, "chess")
    assert f"Score {explanation.score:.4f}, probability " in page.inner_text("#explanation .summary")
    steps = page.locator(".chain button")
    assert steps.count() == 3
    assert f"{explanation.score:.4f}" in steps.nth(0).inner_text()

    def table() -> list[tuple[str, str]]:
        rows = page.locator(".terms tbody:last-child tr").all()
        return [(row.locator("th").inner_text(), row.locator("td.number").inner_text()) for row in rows]

    for step, terms in enumerate([explanation.terms, *(level.terms for level in explanation.levels)]):
        steps.nth(step).click()
        assert steps.nth(step).get_attribute("aria-pressed") == "true"
        if page.locator(".explanation-body > button").count():
            page.click(".explanation-body > button")
        rows = table()
        assert [term for term, _ in rows] == [term.term for term in terms]
        for (_, factor), term in zip(rows, terms, strict=True):
            shown = float(factor[1:].replace("−", "-").replace(",", ""))
            assert shown == pytest.approx(math.exp(term.contribution), rel=0.006)
    steps.nth(0).click()
    assert page.locator(".marked").inner_text().rstrip() == TEXT, "span offsets must be in code points"
    rook = page.locator(".marked mark", has_text=re.compile("^rook$"))
    assert "positive" in rook.get_attribute("class")
    assert page.locator(".marked .unknown", has_text="zyzzyva").count() == 1
    page.locator(".terms tr", has_text="rook").first.hover()
    assert "highlighted" in rook.get_attribute("class")


def test_keyboard(page: Any) -> None:
    enter_text(page, TEXT)
    labels = result_labels(page)
    page.focus("#text")
    page.keyboard.press("Control+Enter")
    assert active_label(page) == labels[0]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert active_label(page) == labels[2]
    assert page.get_attribute("#results [aria-selected=true]", "data-label") == labels[2]
    assert f"label={labels[2].replace('/', '%2F')}" in page.url
    page.keyboard.press("End")
    assert active_label(page) == labels[-1]
    page.keyboard.press("Enter")
    assert active_id(page) == "explanation-panel"
    page.keyboard.press("Escape")
    assert active_label(page) == labels[-1]
    page.keyboard.press("Escape")
    assert active_id(page) == "text"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert active_id(page) == "text"
    page.evaluate("document.activeElement.blur()")
    page.reload()
    page.wait_for_selector("#results [role=option]")
    page.keyboard.press("Tab")
    assert active_id(page) == "skip"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    assert active_id(page) == "text"


def test_beam_search(page: Any, rankers: dict[str, carya.TextRanker]) -> None:
    enter_text(page, TEXT)
    trace = Explorer(rankers["topics"]).search(TEXT, top_k=12)
    columns = page.locator(".beam .level")
    assert columns.count() == 2
    assert columns.nth(0).locator("button").count() == len(trace.levels[0])
    assert columns.nth(1).locator("button").count() == len(trace.labels)
    assert page.locator(".lines path").count() == len(trace.labels)
    assert page.locator(".beam button.lit").count() == 2, "selected label and cluster must be highlighted"
    first = trace.levels[0][0].cluster
    button = columns.nth(0).locator("button").first
    assert first.labels[0].name in button.inner_text()
    assert first.terms[0] in button.inner_text()
    in_beam = [reached for reached in trace.reached if reached.parent == first.node]
    button.hover()
    assert page.locator(".beam button.lit").count() == 1 + len(in_beam), "cluster and labels must be highlighted"
    button.click()
    page.wait_for_selector("#view-tree .leaves")
    assert page.locator(".leaves li").count() == first.n_labels


def test_browse_the_tree_to_a_label_and_back(page: Any) -> None:
    page.click("nav a[data-view=tree]")
    page.wait_for_selector(".clusters li")
    assert page.locator(".clusters li").count() == 4
    page.locator(".clusters a", has_text="Chess").click()
    page.wait_for_selector(".leaves li")
    page.locator(".leaves a", has_text="chess/rook").click()
    page.wait_for_selector("#card .weights li")
    assert page.inner_text("#card-title") == "chess/rook"
    assert page.locator("#card .weights.positive li").first.inner_text().startswith("rook")
    assert "of 400" in page.inner_text("#card .facts")
    assert page.locator("#card .similar li").count() > 0
    page.go_back()
    page.wait_for_selector("#view-tree:not([hidden]) .leaves")
    page.click("nav a[data-view=label]")
    page.type("#search", "Astr")
    page.wait_for_selector("#matches [role=option]")
    page.keyboard.press("ArrowDown")
    assert page.get_attribute("#search", "aria-activedescendant") == "match-0"
    page.keyboard.press("Enter")
    wait_until(page, "document.getElementById('card-title').textContent === 'Astronomy'")


def test_comparison_of_two_models(page: Any, rankers: dict[str, carya.TextRanker]) -> None:
    enter_text(page, TEXT)
    page.select_option("#compare", "coarse")
    page.wait_for_selector("#results.two [role=option]")
    page.click("#results [data-label=chess]")
    wait_until(page, "document.querySelectorAll('#explanation .explanation').length === 2")
    wait_until(page, "document.getElementById('explanation-title').textContent === 'Explanation for Chess'")
    for side, name in enumerate(("topics", "coarse")):
        explanation = page.locator("#explanation .explanation").nth(side).inner_text()
        assert name in explanation.lower()
        assert f"{rankers[name].explain(TEXT, 'chess').score:.4f}" in explanation
    rook = page.locator("#results [data-label='chess/rook']")
    assert "not in this model" in rook.inner_text()
    rook.click()
    last = "document.querySelector('#explanation .explanation:last-child')"
    wait_until(page, f"{last}.textContent.includes('does not have this label')")


def test_trees_of_an_ensemble(other_page: Any, other_folders: dict[str, Path]) -> None:
    page, ranker = other_page, carya.load(other_folders["ensemble"])
    enter_text(page, TEXT)
    assert result_labels(page) == [suggestion.label for suggestion in ranker.suggest(TEXT, top_k=12)]
    page.click("#results [data-label=chess]")
    wait_until(page, "document.getElementById('explanation-title').textContent === 'Explanation for chess'")
    for number in (0, 2):
        page.select_option("#tree-number", str(number))
        wait_until(page, f"document.querySelector('#explanation .note').textContent.includes('tree {number + 1} of 3')")
        assert f"{ranker.explain(TEXT, 'chess', tree=number).score:.4f}" in page.inner_text("#explanation .summary")
        tree = ranker.trees_[number]
        columns = page.locator(".beam .level")
        assert columns.count() == tree.tree_.depth
        labels = tree.rank_sparse(*ranker.vectorizer_.row(TEXT), top_k=12)[0]
        assert columns.last.locator(".name").all_inner_texts() == [ranker.labels_[label] for label in labels]
    page.click("nav a[data-view=tree]")
    page.wait_for_selector("#view-tree .clusters li")
    assert "tree=2" in page.url
    assert page.locator("#tree-choice").is_visible()
    page.select_option("#model", "reranked")
    page.click("nav a[data-view=text]")
    wait_until(
        page, "document.querySelector('#explanation .note')?.textContent.includes('candidates for the reranker')"
    )
    assert page.locator("#tree-choice").is_hidden()
    page.select_option("#model", "mixed")
    wait_until(page, "document.getElementById('explanation').textContent.includes('different kinds of transforms')")
    assert page.locator("#beam-panel").is_visible()


def test_models_without_a_tree(other_page: Any, urls: Urls) -> None:
    page = other_page
    page.select_option("#model", "neighbors")
    page.fill("#text", TEXT)
    page.wait_for_selector("#results:not([hidden]):not([aria-busy]) [role=option][aria-selected=true]")
    wait_until(page, "document.getElementById('explanation').textContent.includes('scores cannot be explained')")
    assert "%" in page.locator("#results [role=option]").first.inner_text(), "probabilities must be shown"
    assert page.locator("#beam-panel").is_hidden()
    assert page.locator("nav a[data-view=tree]").is_hidden()
    assert page.locator("#tree-choice").is_hidden()
    page.select_option("#compare", "votes")
    page.wait_for_selector("#results.two [role=option]")
    wait_until(page, "document.querySelectorAll('#explanation .explanation').length === 2")
    assert "not in the top results" in page.inner_text("#results")
    assert "not in this model" not in page.inner_text("#results")
    page.goto("about:blank")
    page.goto(urls.other_models + "#view=label&label=chess&model=votes")
    wait_until(page, "document.getElementById('card').textContent.includes('no terms or similar labels to show')")
    assert "of 200" in page.inner_text("#card .facts")
    assert page.locator("#card .weights, #card .similar").count() == 0
    page.goto("about:blank")
    page.goto(urls.other_models + "#view=tree&model=votes")
    wait_until(page, "document.getElementById('tree').textContent.includes('no clusters to browse')")
    page.select_option("#model", "ensemble")
    page.wait_for_selector("#view-tree .clusters li")
    assert page.locator("#error").is_hidden()


def test_overlapping_clusters(other_page: Any, other_folders: dict[str, Path]) -> None:
    page, explorer = other_page, Explorer(carya.load(other_folders["overlapping"]))
    page.select_option("#model", "overlapping")
    enter_text(page, TEXT)
    assert "A label can belong to several clusters" in page.inner_text("#beam-note")
    assert page.locator(".lines path").count() == len(explorer.search(TEXT, top_k=12).reached)
    page.click("nav a[data-view=label]")
    page.fill("#search", "chess/queen")
    page.wait_for_selector("#matches [role=option]")
    page.keyboard.press("Enter")
    wait_until(page, "document.querySelectorAll('#card .position').length === 2")
    sections = page.locator("#card .position").all()
    for section, position in zip(sections, explorer.label_card("chess/queen").positions, strict=True):
        assert position.ancestors[-1].labels[0].name in section.locator(".trail").inner_text()
        assert section.locator(".weights.positive li").first.inner_text().startswith(position.positive_terms[0][0])
    page.locator("#card .position .trail a").last.click()
    page.wait_for_selector("#view-tree:not([hidden]) .leaves")
    assert "chess/queen" in page.inner_text(".leaves")
    assert "A label can belong to several clusters" in page.inner_text("#tree")


def test_the_url_restores_the_state(page: Any, urls: Urls) -> None:
    page.goto(urls.public + "#text=a+telescope+%26+a+planet&label=astronomy&model=coarse&compare=topics")
    wait_until(page, "document.getElementById('explanation-title').textContent === 'Explanation for astronomy'")
    assert page.input_value("#text") == "a telescope & a planet"
    assert page.input_value("#model") == "coarse"
    assert page.input_value("#compare") == "topics"
    assert "Scores are not probabilities" in page.inner_text("#legend")


def test_outdated_responses_are_ignored(page: Any) -> None:
    held: list[Any] = []
    page.route("**/v1/explore/text*", lambda route: held.append(route) if not held else route.continue_())
    page.fill("#text", "rook pawn queen")
    deadline = time.monotonic() + 10
    while not held and time.monotonic() < deadline:
        page.wait_for_timeout(20)
    enter_text(page, "telescope planet orbit")
    held[0].abort()
    page.wait_for_timeout(100)
    assert "astronomy" in result_labels(page)
    assert "chess" not in result_labels(page)[0]
    assert page.locator("#error").is_hidden()


def test_texts_that_are_too_long_for_the_url_are_kept(page: Any) -> None:
    text = "rook pawn queen telescope " * 400
    enter_text(page, text)
    assert len(page.url) < 200
    page.click("nav a[data-view=tree]")
    page.wait_for_selector(".clusters li")
    assert active_id(page) == "tree-title"
    page.click("nav a[data-view=text]")
    page.wait_for_selector("#explanation .terms")
    assert page.input_value("#text") == text


def test_texts_are_never_interpreted_as_markup(page: Any) -> None:
    text = 'rook <img src=x onerror="document.title=1"> <b>pawn</b> </p><script>document.title=2</script>'
    enter_text(page, text)
    assert page.locator(".marked").inner_text() == text
    assert page.locator(".marked img, .marked b, .marked script").count() == 0
    assert page.title() == "Text – Carya Explorer"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_small_screens(browser: Any, urls: Urls, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme=scheme, has_touch=True)
    page = context.new_page()
    for address in (
        "#text=rook+pawn+queen",
        "#text=rook&compare=coarse",
        "#view=tree",
        "#view=label&label=chess%2Frook",
    ):
        page.goto("about:blank")
        page.goto(urls.public + address)
        page.wait_for_selector("#explanation .terms, .clusters li, #card .weights", timeout=5000)
        assert page.evaluate("document.documentElement.scrollWidth") == 360, address
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == background) == (scheme == "dark")
    page.goto(urls.public + "#text=rook+pawn+queen+telescope")
    page.wait_for_selector("#explanation .terms")
    page.tap("#results [role=option]:nth-child(3)")
    wait_until(page, "document.getElementById('explanation-panel').getBoundingClientRect().top < 200")
    context.close()


def test_contrast_and_accessible_names(page: Any, other_page: Any, urls: Urls) -> None:
    """All visible text has sufficient contrast in every theme, and every control has an accessible name."""
    addresses = (
        "#text=rook+zyx+pawn",
        "#view=tree",
        "#view=label",
        "#view=label&label=chess%2Frook",
        "#text=rook&compare=coarse",
    )
    other_addresses = ("#text=rook+zyx+pawn&compare=votes", "#model=overlapping&view=label&label=chess%2Fqueen")
    for opened, url, fragments in ((page, urls.public, addresses), (other_page, urls.other_models, other_addresses)):
        for fragment in fragments:
            opened.goto("about:blank")
            opened.goto(url + fragment)
            opened.wait_for_selector("#explanation .terms, .clusters li, #card .weights, .leaves li", timeout=5000)
            assert opened.evaluate(NAMELESS) == []
            assert opened.evaluate(BROKEN_LABELS) == []
            for _ in ("auto", "light", "dark"):
                assert opened.evaluate(LOW_CONTRAST) == []
                opened.click("#theme")


def test_token(browser: Any, urls: Urls) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(urls.protected + "#text=rook+pawn")
    page.fill("#token", "wrong")
    page.click("#token-form button")
    page.wait_for_selector("#token-form:not([hidden])")
    page.fill("#token", "sesame")
    page.click("#token-form button")
    page.wait_for_selector("#explanation .terms")
    assert page.locator("#token-form").is_hidden()
    context.close()


def test_api_page(browser: Any, urls: Urls) -> None:
    """The page lists every operation in the OpenAPI document and can execute them."""
    context = browser.new_context()
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(urls.public + "docs")
    page.wait_for_selector("#operations details")
    summaries = page.locator("#operations summary").all_inner_texts()
    assert any("POST" in summary and "/v1/explore/text" in summary for summary in summaries)
    operation = page.locator("#operations details", has_text="Rank labels for texts")
    operation.locator("summary").click()
    operation.locator("textarea").fill(json.dumps({"text": "rook", "top_k": 1}))
    operation.locator("button").click()
    wait_until(
        page, "[...document.querySelectorAll('pre')].some((output) => output.textContent.includes('chess/rook'))"
    )
    assert page.locator("#schemas details", has_text="SearchTrace").count() > 0
    assert not problems
    context.close()
