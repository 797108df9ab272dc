"""The report of a replay in a real browser, on a desktop and on a phone, light, dark and printed.

Needs Chromium (of the system) and the Python package playwright, which tools/setup does not install.
The report is that which `cargo test --test replay_files` leaves. Screenshots lie beside it.
"""

import os
import shutil
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="no browser test: `pip install playwright`")
CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser test: no Chromium here")

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "tmp" / "replay" / "drive"
SIZES = {"desktop": (1280, 900), "tablet": (760, 1000), "phone": (375, 800), "small_phone": (320, 640)}

# What is seen, in pixels: figures with their texts, and cells of tables that are too narrow.
LOOK = """() => {
  const box = element => { const b = element.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
  const seen = [...document.querySelectorAll('svg')].filter(svg => svg.getClientRects().length);
  return {
    width: document.documentElement.scrollWidth,
    figures: seen.map(svg => ({
      name: svg.getAttribute('aria-label'), box: box(svg),
      shapes: svg.querySelectorAll('polyline, rect, circle').length,
      texts: [...svg.querySelectorAll('text')].map(text => ({text: text.textContent.trim(), box: box(text)})),
      size: Math.min(...[...svg.querySelectorAll('text')].map(text => text.getBoundingClientRect().height)),
      ink: getComputedStyle(svg.querySelector('text')).fill,
    })),
    scrolled: [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).length,
    tight: [...document.querySelectorAll('.tile')].filter(e => e.scrollWidth > e.clientWidth + 1).length,
    paper: getComputedStyle(document.body).backgroundColor,
  };
}"""


def overlap(a, b):
    """Pixels that two boxes share along their shorter side."""
    return min(min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1]))


def brightness(colour):
    return sum(int(part) for part in colour.strip("rgb()").split(",")) / 3


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, request):
    """An empty page; at the end of the test nothing may have been complained of or asked for."""
    complaints, requests = [], []
    page = browser.new_page(**request.param)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: requests.append(asked.url))
    yield page
    page.close()
    assert not complaints
    assert all(url.startswith(("file:", "data:")) for url in requests)


def views():
    for name, (width, height) in SIZES.items():
        for scheme in ["light", "dark"]:
            view = {"viewport": {"width": width, "height": height}, "color_scheme": scheme, "device_scale_factor": 2}
            yield pytest.param(view, f"{name}_{scheme}", id=f"{name}_{scheme}")


@pytest.mark.parametrize("page, name", views(), indirect=["page"])
def test_report_reads_well(page, name):
    page.goto((FOLDER / "report.html").as_uri())
    page.screenshot(path=FOLDER / f"screenshot_{name}.png", full_page=True)
    look = page.evaluate(LOOK)
    width = page.viewport_size["width"]
    assert look["width"] <= width and look["scrolled"] == 0 and look["tight"] == 0
    assert len(look["figures"]) == 5
    for figure in look["figures"]:
        left, top, right, bottom = figure["box"]
        assert right - left > min(250, 0.8 * width) and bottom - top > 80, figure["name"]
        assert figure["shapes"] > 6 and len(figure["texts"]) > 5, figure["name"]
        # What is smaller cannot be read.
        assert figure["size"] >= 10, figure["name"]
        assert abs(brightness(figure["ink"]) - brightness(look["paper"])) > 100, figure["name"]
        for i, text in enumerate(figure["texts"]):
            a = text["box"]
            assert a[0] >= left - 1 and a[2] <= right + 1 and a[3] <= bottom + 2, (figure["name"], text["text"])
            for other in figure["texts"][:i]:
                assert overlap(a, other["box"]) < 2, (figure["name"], text["text"], other["text"])


@pytest.mark.parametrize("page", [{"color_scheme": "dark"}], indirect=True)
def test_report_prints(page):
    page.goto((FOLDER / "report.html").as_uri())
    page.pdf(path=FOLDER / "report.pdf", format="A4", margin={side: "12mm" for side in ["top", "bottom", "left", "right"]})
    page.emulate_media(media="print")
    # On paper it is dark on white, whatever the screen prefers.
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper')").strip() == "#ffffff"
