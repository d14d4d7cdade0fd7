"""Tests for the explorer in a browser: search, exports, warnings, navigation, errors, feedback and accessibility."""

from __future__ import annotations

import csv
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

import carya
from carya import metrics
from carya.serve.app import create_app
from carya.serve.feedback import FeedbackRow, FeedbackStore
from carya.serve.settings import ServerSettings

from serving import save_model
from topics import corpus

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="requires Chromium"),
]

TEXT = "rook pawn queen check king harbor and a mate"
URI = "http://labels.example/topics/"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as context:
        browser = context.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


def serve(models: dict[str, Path], **settings: Any) -> tuple[str, uvicorn.Server, threading.Thread]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    app = create_app(models, ServerSettings(log_level="error", **settings))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    return f"http://127.0.0.1:{listener.getsockname()[1]}/", server, thread


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A calibrated model with words and character n-grams and URIs as ids, and a model trained on other texts."""
    folder = tmp_path_factory.mktemp("views")
    texts, labels = corpus()
    vectorizer = carya.Tfidf(analyzer=["word", "char_wb"], ngram_range=[(1, 2), (4, 4)], min_df=1, n_jobs=1)
    names = {f"{URI}{label}": label.replace("/", " ").title() for row in labels for label in row}
    rows = [[f"{URI}{label}" for label in row] for row in labels]
    ranker = carya.TextRanker(vectorizer, carya.XRLinear(max_leaf_size=6, branching=4, n_jobs=1))
    held_out, held_out_labels = corpus(200, seed=7)
    ranker.fit(texts, rows, names=names)
    ranker.calibrate(held_out, [[f"{URI}{label}" for label in row] for row in held_out_labels])
    ranker.save(folder / "topics")
    save_model(folder / "other", seed=1, uri=URI, transform="log-sigmoid")
    return {"topics": folder / "topics", "other": folder / "other"}


@pytest.fixture(scope="module")
def feedback_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("feedback") / "feedback.db"


@pytest.fixture(scope="module")
def url(models: dict[str, Path], feedback_file: Path) -> Iterator[str]:
    url, server, thread = serve(models, feedback_file=str(feedback_file))
    yield url
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url.rstrip("/"))
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    page.wait_for_selector("#status:not(:empty)")
    yield page
    context.close()
    assert not errors


def enter_text(page: Any, text: str = TEXT) -> None:
    page.fill("#text", text)
    page.wait_for_selector("#results:not([hidden]):not([aria-busy]) [role=option][aria-selected=true]")
    page.wait_for_selector("#explanation .terms")


def wait_until(page: Any, condition: str) -> None:
    """Wait for a JavaScript condition; the page's policy forbids `wait_for_function`."""
    deadline = time.monotonic() + 20
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        time.sleep(0.03)


def shown_labels(page: Any) -> list[str]:
    return [str(option.get_attribute("data-label")) for option in page.locator("#results [role=option]:visible").all()]


def test_labels_are_found_by_parts_of_words(page: Any, url: str) -> None:
    page.goto(f"{url}#view=label")
    page.fill("#search", "lanet")
    page.wait_for_selector("#matches [role=option]")
    assert [option.inner_text() for option in page.locator("#matches [role=option]").all()] == ["Astronomy Planet"]
    page.fill("#search", "planet astro")
    page.wait_for_timeout(300)
    page.click("#matches [role=option]")
    page.wait_for_selector("#card .facts")
    assert page.title() == "Astronomy Planet – Carya Explorer"
    assert page.get_attribute("#card .facts a", "href") == f"{URI}astronomy/planet"


def test_rows_show_short_ids_and_terms_have_no_prefix(page: Any, url: str) -> None:
    enter_text(page)
    assert "http" not in page.inner_text("#results")
    assert "word:" not in page.inner_text("main")
    page.goto(f"{url}#view=label&label={URI}chess")
    page.wait_for_selector("#card .facts")
    assert "word:" not in page.inner_text("main")
    page.goto(f"{url}#view=tree")
    page.wait_for_selector("#tree .cluster-terms")
    assert "word:" not in page.inner_text("main")


def test_sliders_limit_the_results(page: Any) -> None:
    enter_text(page)
    assert len(shown_labels(page)) == 12
    page.fill("#threshold", "60")
    labels = shown_labels(page)
    assert 0 < len(labels) < 12
    shares = page.locator("#results .numbers strong:visible").all_inner_texts()
    assert all(int(share.partition("%")[0]) >= 60 for share in shares)
    page.fill("#count", "20")
    wait_until(page, "document.querySelectorAll('#results [role=option]').length === 20")
    page.reload()
    wait_until(page, "document.querySelectorAll('#results [role=option]').length === 20")
    assert shown_labels(page) == labels  # the URL contains the settings


def test_results_can_be_copied_downloaded_and_shared(page: Any, url: str) -> None:
    enter_text(page)
    labels = shown_labels(page)
    page.click("#copy")
    page.wait_for_selector("#done:has-text('Copied.')")
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert (copied["text"], [item["label"] for item in copied["suggestions"]]) == (TEXT, labels)
    page.select_option("#format", "csv")
    with page.expect_download() as download:
        page.click("#download")
    assert download.value.suggested_filename == "labels.csv"
    rows = list(csv.DictReader(Path(download.value.path()).read_text(encoding="utf-8").splitlines()))
    assert [row["label"] for row in rows] == labels
    assert float(rows[0]["probability"]) > 0.5
    page.select_option("#format", "uris")
    page.click("#copy")
    wait_until(page, "navigator.clipboard.readText().then((text) => text.startsWith('http'))")
    assert page.evaluate("navigator.clipboard.readText()").splitlines() == labels
    page.click("#share")
    page.wait_for_selector("#done:has-text('link')")
    shared = page.evaluate("navigator.clipboard.readText()")
    assert shared.startswith(url)
    page.goto("about:blank")
    page.goto(shared)
    page.wait_for_selector("#results [role=option]")
    assert page.input_value("#text") == TEXT


def test_the_explanation_shows_the_probability_in_the_list(page: Any) -> None:
    enter_text(page)
    for option in page.locator("#results [role=option]").all()[:4]:
        option.click()
        name = option.locator(".name").inner_text().split(" ")[0]
        page.wait_for_selector(f"#explanation-title:has-text('{name}')")
        share = option.locator(".numbers strong").inner_text().partition("%")[0]
        wait_until(
            page, f"document.querySelector('#explanation .summary').textContent.includes('probability {share}%')"
        )


def test_a_warning_is_shown_if_most_words_are_unknown(page: Any) -> None:
    enter_text(page)
    assert page.locator("#unknown-warning").is_hidden()
    enter_text(page, "Die Straßenbahn bringt Fahrgäste unter rook Brücken")
    page.wait_for_selector("#unknown-warning:has-text('6 of 7 words are unknown to topics')")


def test_examples_and_response_time_are_shown(page: Any) -> None:
    page.click("#examples button")
    page.wait_for_selector("#results [role=option]")
    assert "Response time: " in page.inner_text("#status")
    assert page.locator("#examples button").count() == 0
    assert page.get_attribute("#text", "dir") == "auto"


def test_the_comparison_shows_both_beams_and_comparable_bars(page: Any) -> None:
    enter_text(page)
    page.select_option("#compare", "other")
    page.wait_for_selector("#other-beam button")
    assert "Bars show scores relative to the best score." in page.inner_text("#legend")
    lengths = page.locator("#results .bar").evaluate_all(
        "bars => bars.map((bar) => parseFloat(bar.style.getPropertyValue('--length')))"
    )
    assert max(lengths) == 100
    assert min(lengths) >= 0
    widths = page.locator("#other-beam button").evaluate_all(
        "items => items.map((item) => parseFloat(item.style.getPropertyValue('--length')))"
    )
    assert max(widths) > 50  # the scores of this model are negative


def test_navigation_has_no_traps(page: Any, url: str) -> None:
    page.goto(f"{url}#view=label&label={URI}chess")
    page.wait_for_selector("#card .facts")
    page.click("nav a[data-view=label]")
    page.wait_for_selector("#card .leaves")
    page.keyboard.press("Escape")
    page.wait_for_selector("#view-text:not([hidden])")
    assert page.url.startswith(url)
    length = page.evaluate("history.length")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"
    assert page.evaluate("history.length") == length
    page.goto(f"{url}#view=tree&level=77&node=3")
    page.wait_for_selector("#error:not([hidden])")
    page.click("#retry")
    page.wait_for_selector("#tree .clusters")
    assert page.locator("#error").is_hidden()


def test_failed_requests_can_be_repeated(page: Any) -> None:
    page.route("**/v1/explore/text*", lambda route: route.abort())
    page.fill("#text", TEXT)
    page.wait_for_selector("#error:not([hidden])")
    assert "not responding" in page.inner_text("#error")
    assert page.get_attribute("#results", "aria-busy") is None
    assert page.inner_text("#status") == ""
    page.unroute("**/v1/explore/text*")
    page.click("#retry")
    page.wait_for_selector("#results [role=option]")
    assert page.locator("#error").is_hidden()


def test_wrong_tokens_are_reported(browser: Any, models: dict[str, Path]) -> None:
    url, server, thread = serve(models, tokens=("sesame",))
    page = browser.new_page()
    page.goto(url)
    page.fill("#token", "wrong")
    page.click("#token-form button")
    page.wait_for_selector("#token-error:has-text('did not accept')")
    page.fill("#token", "sesame")
    page.click("#token-form button")
    page.wait_for_selector("#status:has-text('labels')")
    assert page.locator("#token-form").is_hidden()
    page.close()
    server.should_exit = True
    thread.join(10)


def test_feedback_buttons_store_labels(page: Any, feedback_file: Path) -> None:
    enter_text(page)
    label = shown_labels(page)[0]
    page.click("#accept")
    page.wait_for_selector("#feedback-done:has-text('accepted')")
    assert list(FeedbackStore(feedback_file).rows("topics")) == [FeedbackRow(TEXT, [label], [])]
    page.click("#reject")
    page.wait_for_selector("#feedback-done:has-text('rejected')")
    assert list(FeedbackStore(feedback_file).rows("topics")) == [FeedbackRow(TEXT, [], [label])]


def test_feedback_belongs_to_the_text_of_the_shown_labels(page: Any, feedback_file: Path) -> None:
    enter_text(page, f"{TEXT} rook")
    label = shown_labels(page)[0]
    page.route("**/v1/explore/text*", lambda route: None)  # never answered
    page.fill("#text", "a telescope")
    page.wait_for_selector("#results[aria-busy]")
    page.click("#accept")
    page.wait_for_selector("#feedback-done:has-text('accepted')")
    assert FeedbackRow(f"{TEXT} rook", [label], []) in list(FeedbackStore(feedback_file).rows("topics"))
    page.unroute("**/v1/explore/text*")


@pytest.fixture(scope="module")
def labeled_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labeled texts as JSON lines; one has a label that the models do not have, one a wrong label, and one none."""
    texts, labels = corpus(150, seed=11)
    rows = [
        {"text": text, "labels": [f"{URI}{label}" for label in row]} for text, row in zip(texts, labels, strict=True)
    ]
    rows[0]["labels"] = [*rows[0]["labels"], "new label"]
    rows[1]["labels"] = [f"{URI}{label}" for row in labels for label in row if label not in labels[1]][:1]  # wrong
    path = tmp_path_factory.mktemp("labeled") / "labeled.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"text": TEXT}]), encoding="utf-8")
    return path


def evaluate_file(page: Any, url: str, path: Path, query: str = "") -> None:
    page.goto(f"{url}#view=evaluation{query}")
    page.wait_for_selector("#view-evaluation:not([hidden])")
    page.set_input_files("#file", path)
    page.wait_for_selector("#evaluation .panel")


def table_rows(page: Any, name: str) -> list[list[str]]:
    rows = page.locator(f"[aria-label='{name}'] tbody tr").all()
    return [row.locator("th, td").all_inner_texts() for row in rows]


def test_evaluations_have_the_metrics_of_carya_metrics(
    page: Any, url: str, models: dict[str, Path], labeled_file: Path
) -> None:
    evaluate_file(page, url, labeled_file, "&compare=other")
    rows = [json.loads(line) for line in labeled_file.read_text(encoding="utf-8").splitlines()]
    assert page.inner_text("#evaluation-status") == f"labeled.jsonl: {len(rows)} texts"
    shown = {name: [float(cell) for cell in cells] for name, *cells in table_rows(page, "Metrics in percent")}
    texts, labels = [row["text"] for row in rows[:-1]], [row["labels"] for row in rows[:-1]]
    best = {}
    for name in ("topics", "other"):
        ranker = carya.load(models[name])
        S = ranker.predict(texts, top_k=10)
        Y, ids = ranker.label_matrix_and_ids(labels)
        S.resize(S.shape[0], len(ids))
        for metric, function in [("P", metrics.precision), ("R", metrics.recall), ("nDCG", metrics.ndcg)]:
            expected = [100 * function(Y, S, k=k) for k in (1, 3, 5, 10)]
            assert shown[f"{metric}@k, {name}"] == pytest.approx(expected, abs=0.006)
        best[name] = [[item.label for item in row] for row in ranker.suggest_all([*texts, TEXT], top_k=10)]
    pairs = list(zip(best["topics"], best["other"], strict=True))
    expected = [100 * sum(len({*a[:k]} & {*b[:k]}) / k for a, b in pairs) / len(pairs) for k in (1, 3, 5, 10)]
    assert shown["Overlap@k of both models"] == pytest.approx(expected, abs=0.006)
    stray = "parts => parts.flatMap((part) => [...part.childNodes]).some((node) => node.nodeType === Node.TEXT_NODE)"
    assert not page.locator("#evaluation, .evaluated").evaluate_all(stray)  # such as a 0 instead of an empty section


def test_evaluations_show_groups_labels_errors_and_calibration(
    page: Any, url: str, models: dict[str, Path], labeled_file: Path
) -> None:
    evaluate_file(page, url, labeled_file)
    rows = [json.loads(line) for line in labeled_file.read_text(encoding="utf-8").splitlines()][:-1]
    groups = table_rows(page, "Results by label frequency")
    assert groups[0][:3] == ["Label not in the model", "1", "1"]
    assert sum(int(group[2]) for group in groups) == sum(len(row["labels"]) for row in rows)
    assert page.locator("svg.plot circle").count() > 3
    report = metrics.label_report(
        carya.load(models["topics"]).label_matrix([row["labels"] for row in rows]),
        carya.load(models["topics"]).predict([row["text"] for row in rows], top_k=10),
        5,
    )
    page.locator("#evaluation select").select_option("frequent")
    first = table_rows(page, "Labels")[0]
    assert int(first[1]) == report.support.max()
    assert rows[1]["text"].startswith(page.inner_text(".worst li:first-child > a").rstrip("…"))
    assert table_rows(page, "Confused labels")
    with page.expect_download() as download:
        page.click("#evaluation button:has-text('Download labels')")
    lines = list(csv.DictReader(Path(download.value.path()).read_text(encoding="utf-8").splitlines()))
    suggested = carya.load(models["topics"]).suggest(TEXT, top_k=10)
    assert [line["label"] for line in lines[-10:]] == [suggestion.label for suggestion in suggested]
    assert {line["id"] for line in lines} == {str(number + 1) for number in range(len(rows) + 1)}
    page.click(".worst li:first-child > a")
    page.wait_for_selector("#explanation .terms")
    assert page.input_value("#text") == rows[1]["text"]
    page.go_back()
    page.locator("[aria-label=Labels] tbody a").first.click()
    page.wait_for_selector("#card h2:has-text('In the evaluated file')")
    assert page.locator("#card .texts li").count() > 0
    page.click("nav a[data-view=map]")
    page.wait_for_selector("#map .map a")
    page.select_option("#color", "quality")
    page.wait_for_selector("#map .map.quality a[title*='recall']")


def test_the_map_leads_from_clusters_to_labels(page: Any, url: str) -> None:
    page.goto(f"{url}#view=map")
    page.wait_for_selector("#map .map a")
    tree = page.evaluate("fetch('v1/explore/tree?level=0&node=0').then((response) => response.json())")
    assert page.locator("#map .map a").count() == tree["n_children"]
    areas = page.locator("#map .map li").evaluate_all(
        "items => items.map((item) => item.getBoundingClientRect()).map((box) => box.width * box.height)"
    )
    sizes = sorted((cluster["n_labels"] for cluster in tree["clusters"]), reverse=True)
    assert [area / sum(areas) for area in areas] == pytest.approx([size / sum(sizes) for size in sizes], rel=0.02)
    assert sum(cluster["count"] for cluster in tree["clusters"]) == tree["cluster"]["count"]
    while page.locator("#map .map a[href*='view=map']").count():
        title = page.inner_text("#map-title")
        page.locator("#map .map a").first.click()
        wait_until(page, f"document.querySelector('#map-title').textContent !== {json.dumps(title)}")
    page.locator("#map .map a").first.click()
    page.wait_for_selector("#card .facts")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a"}\nnot JSON', "Line 2 is not valid JSON."),
        ("a.jsonl", '{"title": "a"}', 'Line 1 has no string with the key "text".'),
        ("a.csv", 'text,labels\n"a,b', "Row 1 has a quotation mark without a matching one."),
        ("a.csv", "text,labels\na,b,c", "Row 1 has 3 cells, but the header has 2."),
        ("a.txt", "\n", "The file contains no texts."),
    ],
)
def test_errors_in_files_are_reported(
    page: Any, url: str, tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    page.goto(f"{url}#view=evaluation")
    page.set_input_files("#file", tmp_path / name)
    page.wait_for_selector("#evaluation-error:not([hidden])")
    assert page.inner_text("#evaluation-error").startswith(message)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("texts.csv", f'id,text,labels\r\nx,"{TEXT}, ""quoted""\nand more",{URI}chess;{URI}sea\r\ny,sea,\r\n'),
        ("texts.tsv", f"text\tlabels\n{TEXT}\t{URI}chess\n"),
        ("texts.txt", f"{TEXT}\n\nthe sea\n"),
    ],
)
def test_tables_and_plain_texts_are_read(page: Any, url: str, tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    evaluate_file(page, url, tmp_path / name)
    expected = {"texts.csv": "2 texts", "texts.tsv": "1 text", "texts.txt": "2 texts"}[name]
    assert page.inner_text("#evaluation-status") == f"{name}: {expected}"
    assert (page.locator("[aria-label='Metrics in percent']").count() == 1) == (name != "texts.txt")


VIEWS = {
    "start": "",
    "text": f"#text={TEXT}",
    "comparison": f"#compare=other&text={TEXT}",
    "tree": "#view=tree",
    "map": "#view=map",
    "evaluation": "#view=evaluation",
    "labels": "#view=label",
    "card": f"#view=label&label={URI}chess",
    "error": "#view=tree&level=77",
    "api": "docs",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_views_have_no_accessibility_violations(
    browser: Any, url: str, scheme: str, width: int, labeled_file: Path
) -> None:
    package = pytest.importorskip("axe_playwright_python")
    script = (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    for name, address in VIEWS.items():
        page = context.new_page()
        page.goto(url + address)
        page.wait_for_load_state("networkidle")
        if name == "evaluation":
            page.set_input_files("#file", labeled_file)
            page.wait_for_selector("#evaluation svg.plot")
        page.evaluate(script)
        violations = page.evaluate("axe.run(document).then((result) => result.violations)")
        assert not [(item["id"], item["nodes"][0]["html"]) for item in violations], name
        page.close()
    context.close()
