"""The explorer: what its page asks for and, where there is a browser, the page itself."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import carya
from carya.ranking import NeuralRanker
from carya.text.explore.explorer import Explorer

from topics import TOPICS, corpus, overlapping_tree

pytest.importorskip("starlette")
pytest.importorskip("msgspec")
httpx = pytest.importorskip("httpx")

from carya.serve.app import create_app  # noqa: E402
from carya.serve.registry import Registry  # noqa: E402
from carya.serve.routes import explorer as explorer_pages  # noqa: E402
from carya.serve.settings import Settings  # noqa: E402

TEXT = "The rook takes a pawn; the queen gives check 𝄞 near the harbour, zyzzyva"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A calibrated model in a tree of topics, and one of topics only that is not calibrated."""
    place = tmp_path_factory.mktemp("models")
    texts, labels = corpus(400)
    ids = sorted({label for row in labels for label in row})
    tree = carya.LabelTree.from_paths([label.partition("/")[0] for label in ids])
    names = {topic: topic.title() for topic in TOPICS}
    ranker = carya.TextRanker(None, carya.XRLinear(tree=tree)).fit(texts, labels, names=names)
    ranker.calibrate(*corpus(200, seed=1)).save(place / "topics")
    coarse = [[label for label in row if "/" not in label] for row in labels]
    carya.TextRanker(None, carya.XRLinear(max_leaf=2, branching=2)).fit(texts, coarse).save(place / "coarse")
    return {"topics": place / "topics", "coarse": place / "coarse"}


@pytest.fixture(scope="module")
def rankers(folders: dict[str, Path]) -> dict[str, carya.TextRanker]:
    return {name: carya.load(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def other_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models that are not one plain tree."""
    place = tmp_path_factory.mktemp("others")
    texts, labels = corpus(200)
    base = carya.XRLinear(max_leaf=6, branching=2)
    made = {
        "ensemble": carya.Ensemble(base, n_trees=3),
        "neighbours": carya.NearestNeighbours(),
        "votes": carya.NearestNeighbours(over="rows", neighbours=3),
        "reranked": carya.Reranked(base, NeuralRanker()),
        "overlapping": carya.XRLinear(tree=overlapping_tree(sorted({label for row in labels for label in row}))),
        "unlike": carya.XRLinear(max_leaf=6, transform=("l3-hinge", "log-sigmoid")),
    }
    for name, model in made.items():
        ranker = carya.TextRanker(None, model).fit(texts, labels)
        if name in ("neighbours", "overlapping"):
            ranker.calibrate(*corpus(100, seed=1))
        ranker.save(place / name)
    return {name: place / name for name in made}


class Asking:
    """Asks an application in this process."""

    def __init__(self, models: Any) -> None:
        self._app = create_app(models, Settings(log="error"))

    def __call__(self, path: str, body: Any = None, **options: Any) -> Any:
        async def ask() -> Any:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://carya") as client:
                if body is None:
                    return await client.get(path, **options)
                return await client.post(path, json=body, **options)

        return asyncio.run(ask())


@pytest.fixture(scope="module")
def ask(folders: dict[str, Path]) -> Asking:
    return Asking(folders)


def test_the_models(ask: Asking, rankers: dict[str, carya.TextRanker]) -> None:
    said = ask("/v1/explore/models").json()
    assert said["default"] == "topics"
    first, second = said["models"]
    assert first == {
        "name": "topics",
        "kind": "XRLinear",
        "labels": len(rankers["topics"].labels_),
        "terms": rankers["topics"].vectorizer_.n_features_,
        "texts": 400,
        "trees": [{"levels": [4], "beam_width": 10, "overlaps": False, "explains": True}],
        "calibrated": True,
    }
    assert (second["name"], second["calibrated"]) == ("coarse", False)


def test_answers_are_those_of_the_explorer(ask: Asking, rankers: dict[str, carya.TextRanker]) -> None:
    mine, other = Explorer(rankers["topics"]), Explorer(rankers["coarse"])
    walk = ask("/v1/explore/text", {"text": TEXT, "top_k": 5}).json()
    assert [(one["label"]["label"], one["score"]) for one in walk["found"]] == [
        (one.label, one.score) for one in mine.ranker.suggest(TEXT, top_k=5)
    ]
    assert all(0 < one["chance"] < 1 for one in walk["found"])
    assert [[held["cluster"]["node"] for held in level] for level in walk["levels"]] == [
        [held.cluster.node for held in level] for level in mine.walk(TEXT).levels
    ]
    assert ask("/v1/explore/text?model=coarse", {"text": TEXT}).json()["found"][0]["chance"] is None
    why = ask("/v1/explore/explain", {"text": TEXT, "label": "chess"}).json()
    told = json.loads(json.dumps(mine.ranker.explain(TEXT, "chess").to_dict()))
    assert {name: why[name] for name in ("label", "name", "score", "base", "terms")} == {
        name: told[name] for name in ("label", "name", "score", "base", "terms")
    }
    assert [level["terms"] for level in why["levels"]] == [level["terms"] for level in told["levels"]]
    rows = ask("/v1/explore/compare?model=topics&other=coarse", {"text": TEXT}).json()
    assert rows[0]["ranks"][0] == 1
    assert {row["label"]["label"]: row["found"][1] is not None for row in rows}["chess"]
    branch = ask("/v1/explore/tree", params={"level": 1, "node": 2}).json()
    assert [one["label"] for one in branch["labels"]] == [one.label for one in mine.branch(1, 2).labels]
    card = ask("/v1/explore/label", params={"label": "Chess"}).json()
    assert card["label"]["label"] == "chess"
    assert card["places"][0]["words_for"] == [list(one) for one in mine.label("chess").places[0].words_for]
    assert ask("/v1/explore/tree?model=coarse").json()["n_children"] == other.branch().n_children


def test_models_that_are_not_one_tree(other_folders: dict[str, Path]) -> None:
    ask = Asking(other_folders)
    notes = {one["name"]: one for one in ask("/v1/explore/models").json()["models"]}
    assert {name: len(note["trees"]) for name, note in notes.items()} == {
        "ensemble": 3,
        "neighbours": 0,
        "votes": 0,
        "reranked": 1,
        "overlapping": 1,
        "unlike": 1,
    }
    assert [name for name, note in notes.items() if any(tree["overlaps"] for tree in note["trees"])] == ["overlapping"]
    assert [name for name, note in notes.items() if not all(tree["explains"] for tree in note["trees"])] == ["unlike"]
    for name, note in notes.items():
        ranker = carya.load(other_folders[name])
        walk = ask(f"/v1/explore/text?model={name}", {"text": TEXT, "top_k": 4}).json()
        assert [one["label"]["label"] for one in walk["found"]] == [one.label for one in ranker.suggest(TEXT, top_k=4)]
        assert (
            ask(f"/v1/explore/label?model={name}&label=chess").json()["label"]["count"]
            == ranker.label_counts_[ranker.known().number("chess")]
        )
        for number, tree in enumerate(note["trees"]):
            branch = ask(f"/v1/explore/tree?model={name}&tree={number}").json()
            assert branch["cluster"]["n_labels"] == len(ranker.labels_)
            why = ask(f"/v1/explore/explain?model={name}&tree={number}", {"text": TEXT, "label": "chess"})
            assert why.status_code == (200 if tree["explains"] else 400)
        if not note["trees"]:
            refused = ask(f"/v1/explore/tree?model={name}")
            assert (refused.status_code, "no label tree to look at" in refused.text) == (400, True)
        rows = ask(f"/v1/explore/compare?model={name}&other=votes", {"text": TEXT, "top_k": 3})
        assert all(row["known"] == [True, True] for row in rows.json())


@pytest.mark.parametrize(
    ("path", "body", "status", "detail"),
    [
        ("/v1/explore/text?model=none", {"text": "a"}, 404, "there is no model 'none'"),
        ("/v1/explore/text", {"text": 3}, 400, "the body is not what it must be"),
        ("/v1/explore/text", {"text": "a", "topk": 3}, 400, "the body is not what it must be"),
        ("/v1/explore/text", {"text": "a", "top_k": 0}, 400, "the body is not what it must be"),
        ("/v1/explore/text", {"text": "a", "top_k": 10**6}, 400, "top_k is 1000000; it must be at most 1000"),
        ("/v1/explore/text", {"text": "a" * 300_000}, 413, "a text has 300000 characters"),
        ("/v1/explore/explain", {"text": "a", "label": "ches"}, 404, "there is no label 'ches'"),
        ("/v1/explore/compare?other=x", {"text": "a"}, 404, "there is no model 'x'"),
        ("/v1/explore/tree?level=2", None, 400, "level must be between 0 and 1, got 2"),
        ("/v1/explore/tree?level=1&node=99", None, 400, "node must be between 0 and 3, got 99"),
        ("/v1/explore/tree?level=-1", None, 400, "level is '-1'; it must be a whole number"),
        ("/v1/explore/label", None, 404, "there is no label ''"),
        ("/v1/explore/tree?tree=1", None, 400, "tree must be between 0 and 0, got 1"),
        ("/v1/explore/text?tree=1", {"text": "a"}, 400, "tree must be between 0 and 0, got 1"),
        ("/page/..%2fexplorer.py", None, 404, ""),
        ("/page/%2e%2e%2fapp.py", None, 404, ""),
        ("/page/none.js", None, 404, "there is no such page"),
    ],
)
def test_what_is_refused(ask: Asking, path: str, body: Any, status: int, detail: str) -> None:
    said = ask(path, body)
    assert said.status_code == status
    assert detail in said.json()["detail"]


def test_the_page_loads_nothing_from_elsewhere(ask: Asking) -> None:
    index = ask("/")
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    policy = index.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert ask("/", headers={"If-None-Match": index.headers["etag"]}).status_code == 304
    for file in explorer_pages.PAGE.iterdir():
        got = ask(f"/page/{file.name}")
        assert got.status_code == 200
        assert got.headers["content-security-policy"] == policy
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//\w+\.\w+/|@import|url\(", text), file.name
        for danger in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert danger not in text, (file.name, danger)
    for name in re.findall(r'(?:src|href)="(page/[^"]+)"', index.text):
        assert ask("/" + name).status_code == 200
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", index.text)


def test_a_new_version_is_looked_at(folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(folders["coarse"], tmp_path / "model")
    registry = Registry.open({"model": tmp_path / "model"})
    asking = Asking(registry)
    assert len(asking("/v1/explore/tree").json()["cluster"]["labels"]) == 4
    carya.load(folders["topics"]).save(tmp_path / "model")
    registry.refresh()
    assert asking("/v1/explore/tree").json()["cluster"]["n_labels"] > 4


#: Texts that are shown, and their contrast with what is painted behind them, where it is below 4.5.
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
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      layers.unshift(parse(getComputedStyle(one).backgroundColor));
    }
    const over = (below, [r, g, b, a]) => [r, g, b].map((v, at) => v * a + below[at] * (1 - a));
    return layers.reduce(over, [255, 255, 255]);
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const said = walker.currentNode.data.trim();
    if (!said || !element.checkVisibility() || element.closest('.hidden, .skip, noscript')) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push([said.slice(0, 30), element.className, ratio]);
  }
  return low;
}"""


# ── In a browser ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's chromium, if it and playwright are there."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no chromium")
    with playwright.sync_playwright() as playing:
        opened = playing.chromium.launch(executable_path=chromium)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def addresses(folders: dict[str, Path], other_folders: dict[str, Path]) -> Iterator[tuple[str, str, str]]:
    """A server that everybody may ask, one that wants a token, and one with models that are not one tree."""
    uvicorn = pytest.importorskip("uvicorn")
    servers, threads, found = [], [], []
    for settings, models in (
        (Settings(log="error"), folders),
        (Settings(log="error", tokens=("sesame",)), folders),
        (Settings(log="error"), other_folders),
    ):
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        found.append(f"http://127.0.0.1:{sock.getsockname()[1]}/")
        server = uvicorn.Server(uvicorn.Config(create_app(models, settings), log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        servers.append(server)
        threads.append(thread)
    until = time.monotonic() + 30
    while not all(server.started for server in servers) and time.monotonic() < until:
        time.sleep(0.02)
    yield found[0], found[1], found[2]
    for server in servers:
        server.should_exit = True
    for thread in threads:
        thread.join(10)


@pytest.fixture
def page(browser: Any, addresses: tuple[str, str, str]) -> Iterator[Any]:
    """A page that is open; whatever the browser complains of fails the test."""
    yield from opened_page(browser, addresses[0], 2)


@pytest.fixture
def other_page(browser: Any, addresses: tuple[str, str, str]) -> Iterator[Any]:
    """The same of the server with models that are not one tree."""
    yield from opened_page(browser, addresses[2], 6)


def opened_page(browser: Any, address: str, models: int) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    complaints: list[str] = []
    asked: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(address)
    until(opened, f"document.getElementById('model').options.length === {models}")
    yield opened
    context.close()
    assert not complaints
    assert all(url.startswith(address) for url in asked), "it asks nobody else"


def until(page: Any, condition: str) -> None:
    """Wait for something; playwright's own way needs `eval`, which the page's policy forbids."""
    end = time.monotonic() + 20
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.02)


def options(page: Any) -> list[str]:
    return [one.get_attribute("data-label") for one in page.locator("#found [role=option]").all()]


def write(page: Any, text: str) -> None:
    page.fill("#text", text)
    page.wait_for_selector("#found:not([hidden]):not([aria-busy]) [role=option][aria-selected=true]")
    page.wait_for_selector("#why .terms")


def test_type_and_see_labels(page: Any, rankers: dict[str, carya.TextRanker]) -> None:
    assert "labels, learned from 400 texts" in page.inner_text("#said")
    write(page, TEXT)
    want = rankers["topics"].suggest(TEXT, top_k=12)
    assert options(page) == [one.label for one in want]
    first = page.locator("#found [role=option]").first
    assert want[0].name in first.inner_text()
    chance = rankers["topics"].calibration_([want[0].score])[0]
    assert f"{round(100 * chance)} %" in first.inner_text()
    length = first.locator(".bar").evaluate("bar => bar.style.getPropertyValue('--length')")
    assert float(length.removesuffix("%")) == pytest.approx(100 * chance)
    assert "Bars are chances" in page.inner_text("#legend")
    page.fill("#text", "qqq zzz")
    until(page, "document.getElementById('said').textContent.includes('knows no word')")
    assert options(page) == []


def test_click_a_label_and_see_why(page: Any, rankers: dict[str, carya.TextRanker]) -> None:
    write(page, TEXT)
    page.click("#found [data-label=chess]")
    until(page, "document.getElementById('why-title').textContent === 'Why Chess'")
    why = rankers["topics"].explain(TEXT, "chess")
    steps = page.locator(".chain button")
    assert steps.count() == 3
    assert f"{why.score:.4f}" in steps.nth(0).inner_text()

    def table() -> list[tuple[str, str]]:
        rows = page.locator(".terms tbody:last-child tr").all()
        return [(row.locator("th").inner_text(), row.locator("td.number").inner_text()) for row in rows]

    for at, terms in enumerate([why.terms, *(level.terms for level in why.levels)]):
        steps.nth(at).click()
        assert steps.nth(at).get_attribute("aria-pressed") == "true"
        if page.locator(".why-body > button").count():
            page.click(".why-body > button")
        shown = table()
        assert [term for term, _ in shown] == [one.term for one in terms]
        for (_, number), one in zip(shown, terms, strict=True):
            assert float(number[1:].replace("−", "-").replace(",", "")) == pytest.approx(
                2.718281828459045**one.share, rel=0.006
            )
    steps.nth(0).click()
    assert page.locator(".marked").inner_text().rstrip() == TEXT, "places count characters, also outside the BMP"
    rook = page.locator(".marked mark", has_text=re.compile("^rook$"))
    assert "for" in rook.get_attribute("class")
    assert page.locator(".marked .unknown", has_text="zyzzyva").count() == 1
    page.locator(".terms tr", has_text="rook").first.hover()
    assert "touched" in rook.get_attribute("class")


def test_by_keys_alone(page: Any) -> None:
    write(page, TEXT)
    labels = options(page)
    page.focus("#text")
    page.keyboard.press("Control+Enter")
    assert page.evaluate("document.activeElement.dataset.label") == labels[0]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.label") == labels[2]
    assert page.get_attribute("#found [aria-selected=true]", "data-label") == labels[2]
    assert f"label={labels[2].replace('/', '%2F')}" in page.url
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.dataset.label") == labels[-1]
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "why-panel"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.label") == labels[-1]
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "text"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"
    page.evaluate("document.activeElement.blur()")
    page.reload()
    page.wait_for_selector("#found [role=option]")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "text"


def test_the_way_through_the_tree(page: Any, rankers: dict[str, carya.TextRanker]) -> None:
    write(page, TEXT)
    walk = Explorer(rankers["topics"]).walk(TEXT, top_k=12)
    columns = page.locator(".beam .level")
    assert columns.count() == 2
    assert columns.nth(0).locator("button").count() == len(walk.levels[0])
    assert columns.nth(1).locator("button").count() == len(walk.found)
    assert page.locator(".lines path").count() == len(walk.found)
    assert page.locator(".beam button.lit").count() == 2, "the chosen label and its cluster"
    first = walk.levels[0][0].cluster
    assert first.labels[0].name in columns.nth(0).locator("button").first.inner_text()
    assert first.words[0] in columns.nth(0).locator("button").first.inner_text()
    columns.nth(0).locator("button").first.click()
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
    assert page.locator("#card .weights.for li").first.inner_text().startswith("rook")
    assert "of 400" in page.inner_text("#card .facts")
    assert page.locator("#card .near li").count() > 0
    page.go_back()
    page.wait_for_selector("#view-tree:not([hidden]) .leaves")
    page.click("nav a[data-view=label]")
    page.type("#search", "Astr")
    page.wait_for_selector("#matches [role=option]")
    page.keyboard.press("ArrowDown")
    assert page.get_attribute("#search", "aria-activedescendant") == "match-0"
    page.keyboard.press("Enter")
    until(page, "document.getElementById('card-title').textContent === 'Astronomy'")


def test_two_models_side_by_side(page: Any, rankers: dict[str, carya.TextRanker]) -> None:
    write(page, TEXT)
    page.select_option("#other", "coarse")
    page.wait_for_selector("#found.two [role=option]")
    page.click("#found [data-label=chess]")
    until(page, "document.querySelectorAll('#why .why').length === 2")
    until(page, "document.getElementById('why-title').textContent === 'Why Chess'")
    for at, name in enumerate(("topics", "coarse")):
        why = page.locator("#why .why").nth(at)
        assert name in why.inner_text().lower()
        assert f"{rankers[name].explain(TEXT, 'chess').score:.4f}" in why.inner_text()
    rook = page.locator("#found [data-label='chess/rook']")
    assert "does not know it" in rook.inner_text()
    rook.click()
    until(page, "document.querySelector('#why .why:last-child').textContent.includes('does not know the label')")


def test_a_member_of_an_ensemble(other_page: Any, other_folders: dict[str, Path]) -> None:
    page, ranker = other_page, carya.load(other_folders["ensemble"])
    write(page, TEXT)
    assert options(page) == [one.label for one in ranker.suggest(TEXT, top_k=12)]
    page.click("#found [data-label=chess]")
    until(page, "document.getElementById('why-title').textContent === 'Why chess'")
    for number in (0, 2):
        page.select_option("#tree-number", str(number))
        until(page, f"document.querySelector('#why .note').textContent.includes('tree {number + 1} of 3')")
        assert f"{ranker.explain(TEXT, 'chess', tree=number).score:.4f}" in page.inner_text("#why .sum")
        tree = ranker.trees_[number]
        columns = page.locator(".beam .level")
        assert columns.count() == tree.tree_.depth
        found = tree.rank_sparse(*ranker.vectorizer_.row(TEXT), top_k=12)[0]
        shown = columns.last.locator(".name").all_inner_texts()
        assert shown == [ranker.labels_[label] for label in found]
    page.click("nav a[data-view=tree]")
    page.wait_for_selector("#view-tree .clusters li")
    assert "tree=2" in page.url
    assert page.locator("#tree-choice").is_visible()
    page.select_option("#model", "reranked")
    page.click("nav a[data-view=text]")
    until(page, "document.querySelector('#why .note')?.textContent.includes('second ranker')")
    assert page.locator("#tree-choice").is_hidden()
    page.select_option("#model", "unlike")
    until(page, "document.getElementById('why').textContent.includes('join their scores in different ways')")
    assert page.locator("#beam-panel").is_visible()


def test_a_model_without_a_tree_says_so(other_page: Any, addresses: tuple[str, str, str]) -> None:
    page = other_page
    page.select_option("#model", "neighbours")
    page.fill("#text", TEXT)
    page.wait_for_selector("#found:not([hidden]):not([aria-busy]) [role=option][aria-selected=true]")
    until(page, "document.getElementById('why').textContent.includes('cannot tell which words spoke')")
    assert "%" in page.locator("#found [role=option]").first.inner_text(), "it is calibrated"
    assert page.locator("#beam-panel").is_hidden()
    assert page.locator("nav a[data-view=tree]").is_hidden()
    assert page.locator("#tree-choice").is_hidden()
    page.select_option("#other", "votes")
    page.wait_for_selector("#found.two [role=option]")
    until(page, "document.querySelectorAll('#why .why').length === 2")
    assert "not among its best" in page.inner_text("#found")
    assert "does not know" not in page.inner_text("#found")
    page.goto("about:blank")
    page.goto(addresses[2] + "#view=label&label=chess&model=votes")
    until(page, "document.getElementById('card').textContent.includes('no more to tell')")
    assert "of 200" in page.inner_text("#card .facts")
    assert page.locator("#card .weights, #card .near").count() == 0
    page.goto("about:blank")
    page.goto(addresses[2] + "#view=tree&model=votes")
    until(page, "document.getElementById('tree').textContent.includes('no clusters to browse')")
    page.select_option("#model", "ensemble")
    page.wait_for_selector("#view-tree .clusters li")
    assert page.locator("#trouble").is_hidden()


def test_clusters_that_overlap(other_page: Any, other_folders: dict[str, Path]) -> None:
    page, looked = other_page, Explorer(carya.load(other_folders["overlapping"]))
    page.select_option("#model", "overlapping")
    write(page, TEXT)
    assert "A label may lie in several clusters" in page.inner_text("#beam-note")
    assert page.locator(".lines path").count() == len(looked.walk(TEXT, top_k=12).reached)
    page.click("nav a[data-view=label]")
    page.fill("#search", "chess/queen")
    page.wait_for_selector("#matches [role=option]")
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('#card .place').length === 2")
    for place, told in zip(page.locator("#card .place").all(), looked.label("chess/queen").places, strict=True):
        assert told.above[-1].labels[0].name in place.locator(".trail").inner_text()
        assert place.locator(".weights.for li").first.inner_text().startswith(told.words_for[0][0])
    page.locator("#card .place .trail a").last.click()
    page.wait_for_selector("#view-tree:not([hidden]) .leaves")
    assert "chess/queen" in page.inner_text(".leaves")
    assert "A label may lie in several clusters" in page.inner_text("#tree")


def test_an_address_says_it_all(page: Any, addresses: tuple[str, str, str]) -> None:
    page.goto(addresses[0] + "#text=a+telescope+%26+a+planet&label=astronomy&model=coarse")
    until(page, "document.getElementById('why-title').textContent === 'Why astronomy'")
    assert page.input_value("#text") == "a telescope & a planet"
    assert page.input_value("#model") == "coarse"
    assert "a score is no probability" in page.inner_text("#legend")


def test_an_answer_that_comes_too_late_is_not_shown(page: Any) -> None:
    held: list[Any] = []
    page.route("**/v1/explore/text*", lambda route: held.append(route) if not held else route.continue_())
    page.fill("#text", "rook pawn queen")
    end = time.monotonic() + 10
    while not held and time.monotonic() < end:
        page.wait_for_timeout(20)
    write(page, "telescope planet orbit")
    held[0].abort()
    page.wait_for_timeout(100)
    assert "astronomy" in options(page)
    assert "chess" not in options(page)[0]
    assert page.locator("#trouble").is_hidden()


def test_long_texts_are_kept_though_no_address_holds_them(page: Any) -> None:
    text = "rook pawn queen telescope " * 400
    write(page, text)
    assert len(page.url) < 200
    page.click("nav a[data-view=tree]")
    page.wait_for_selector(".clusters li")
    assert page.evaluate("document.activeElement.id") == "tree-title"
    page.click("nav a[data-view=text]")
    page.wait_for_selector("#why .terms")
    assert page.input_value("#text") == text


def test_what_is_written_is_never_markup(page: Any) -> None:
    evil = 'rook <img src=x onerror="document.title=1"> <b>pawn</b> </p><script>document.title=2</script>'
    write(page, evil)
    assert page.locator(".marked").inner_text() == evil
    assert page.locator(".marked img, .marked b, .marked script").count() == 0
    assert page.title() == "Carya explorer"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(browser: Any, addresses: tuple[str, str, str], scheme: str) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme=scheme, has_touch=True)
    page = context.new_page()
    for place in ("#text=rook+pawn+queen", "#text=rook&with=coarse", "#view=tree", "#view=label&label=chess%2Frook"):
        page.goto("about:blank")
        page.goto(addresses[0] + place)
        page.wait_for_selector("#why .terms, .clusters li, #card .weights", timeout=5000)
        assert page.evaluate("document.documentElement.scrollWidth") == 360, place
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    changed = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (changed == light) == (scheme == "dark")
    page.goto(addresses[0] + "#text=rook+pawn+queen+telescope")
    page.wait_for_selector("#why .terms")
    page.tap("#found [role=option]:nth-child(3)")
    until(page, "document.getElementById('why-panel').getBoundingClientRect().top < 200")
    context.close()


#: What can be reached by keys and has no name that a screen reader could say.
NAMELESS = """() => [...document.querySelectorAll('a, button, input, select, textarea, [tabindex], [role=listbox]')]
  .filter((one) => one.checkVisibility())
  .filter((one) => !one.labels?.length && !one.ariaLabel && !one.hasAttribute('aria-labelledby')
    && !one.textContent.trim())
  .map((one) => one.outerHTML)"""


def test_contrast_is_enough_and_all_have_names(page: Any, other_page: Any, addresses: tuple[str, str, str]) -> None:
    """Of every text that is shown, against what is painted behind it, in light and dark."""
    one_tree = (
        "#text=rook+zyx+pawn",
        "#view=tree",
        "#view=label",
        "#view=label&label=chess%2Frook",
        "#text=rook&with=coarse",
    )
    others = ("#text=rook+zyx+pawn&with=votes", "#model=overlapping&view=label&label=chess%2Fqueen")
    for looked, address, places in ((page, addresses[0], one_tree), (other_page, addresses[2], others)):
        for place in places:
            looked.goto("about:blank")
            looked.goto(address + place)
            looked.wait_for_selector("#why .terms, .clusters li, #card .weights, .leaves li", timeout=5000)
            assert looked.evaluate(NAMELESS) == []
            for _ in range(3):  # as the browser wants it, light, dark
                assert looked.evaluate(LOW_CONTRAST) == []
                looked.click("#theme")


def test_a_server_that_wants_a_token(browser: Any, addresses: tuple[str, str, str]) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(addresses[1] + "#text=rook+pawn")
    page.fill("#token", "wrong")
    page.click("#token-form button")
    page.wait_for_selector("#token-form:not([hidden])")
    page.fill("#token", "sesame")
    page.click("#token-form button")
    page.wait_for_selector("#why .terms")
    assert page.locator("#token-form").is_hidden()
    context.close()
