"""The report as its readers open it: from a disk, on a wide screen and on a phone, in the light and in the dark."""

from __future__ import annotations

import json
import re

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.bench.report_sources import Elements
from tests.page.conftest import TITLE, report

WIDTHS, SCHEMES = (1280, 400), ("light", "dark")
#: Plots that the sources of these tests fill, each with how many panels.
PLOTS = {
    "claims": 1,
    "speed-up-virtual": 1,
    "speed-up-sockets": 1,
    "speed-up-endpoint-0": 1,
    "speed-up-endpoint-1": 1,
    "speed-up-self": 1,
    "sweep": 3,
    "sweep-own": 1,
    "limit": 3,
    "auto": 1,
    "gpu-wait-steps": 1,
    "gpu-wait-claims": 1,
    "main-thread": 1,
    "memory-by-batch-size": 1,
    "peers-cpu": 1,
    "peers-start": 1,
    "history-commits": 1,
    "nights-speed-up": 1,
    "nights-memory": 1,
}

DRAWN = """
const isDrawn = plot => {
  const svg = plot.querySelector("svg"), box = svg && svg.getBoundingClientRect();
  const marks = plot.querySelectorAll(".role-mark path, .role-mark rect, .role-mark line, .role-mark text");
  return svg && box.width > 200 && box.height > 80 && marks.length > 1;
};
const plots = figure => [...figure.querySelectorAll(".plot")];
return [...document.querySelectorAll("figure")].map(figure => [figure.id, plots(figure).map(isDrawn)]);
"""
#: Whatever reaches over the right edge, but for what its own element cuts off.
TOO_WIDE = """
const width = document.documentElement.clientWidth;
return [...document.body.querySelectorAll("*")].filter(each => each.getBoundingClientRect().right > width + 0.5)
  .map(each => each.outerHTML.slice(0, 120));
"""
#: Pairs of texts of one plot that stand on each other.
OVERLAPPING = """
const found = [];
const isShown = text => text.textContent.trim() && getComputedStyle(text).opacity !== "0";
for (const svg of document.querySelectorAll(".plot svg")) {
  const texts = [...svg.querySelectorAll("text")].filter(isShown).map(text => [text, text.getBoundingClientRect()]);
  texts.forEach(([one, a], place) => texts.slice(place + 1).forEach(([other, b]) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && down > 4) found.push(`${one.textContent} | ${other.textContent}`);
  }));
}
return found;
"""
PAINTED = """
const style = element => getComputedStyle(element);
return [style(document.body).backgroundColor, style(document.querySelector("h1")).color,
        style(document.querySelector("#claims .role-axis-label text")).fill];
"""


def open_page(driver, made, width: int = 1280, scheme: str = "light") -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    prefers = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", prefers)
    driver.get_log("browser"), driver.get_log("performance")  # of the page before
    driver.get((made / "index.html").as_uri())
    plots = sum(PLOTS.values())
    WebDriverWait(driver, 60).until(lambda _: len(driver.find_elements(By.CSS_SELECTOR, "[data-drawn]")) == plots)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_plot_is_drawn_within_the_screen_without_a_word_in_the_console(driver, made, width, scheme):
    open_page(driver, made, width, scheme)
    assert driver.get_log("browser") == []
    assert dict(driver.execute_script(DRAWN)) == {name: [True] * panels for name, panels in PLOTS.items()}
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert driver.execute_script(TOO_WIDE) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_no_two_labels_of_a_plot_stand_on_each_other(driver, made, width):
    open_page(driver, made, width)
    assert driver.execute_script(OVERLAPPING) == []


def test_the_page_follows_the_readers_scheme_plots_included(driver, made):
    open_page(driver, made, scheme="light")
    light = driver.execute_script(PAINTED)
    prefers = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", prefers)  # without loading it again
    dark = driver.execute_script(PAINTED)
    brightness = [[sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in found] for found in (light, dark)]
    (paper, *ink), (dark_paper, *dark_ink) = brightness
    assert all(paper > each for each in ink)
    assert all(dark_paper < each for each in dark_ink)


def test_a_page_that_is_printed_is_light_whatever_the_reader_prefers(driver, made):
    open_page(driver, made, scheme="dark")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    background, *_ = driver.execute_script(PAINTED)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert background == "rgb(255, 255, 255)"


def test_nothing_but_the_file_itself_is_asked_for(driver, made):
    open_page(driver, made)
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert asked == [(made / "index.html").as_uri()]


def test_what_the_sources_say_is_text_and_nothing_of_it_runs(driver, made):
    open_page(driver, made)
    assert driver.title == TITLE
    assert driver.find_elements(By.CSS_SELECTOR, "b, [onmouseover]") == []
    assert "document.title = 'broken'" in driver.find_element(By.ID, "gate").text


def test_a_mark_says_its_figures_under_the_pointer(driver, made):
    open_page(driver, made)
    mark = driver.find_element(By.CSS_SELECTOR, "#claims .mark-symbol path")
    driver.execute_script("arguments[0].scrollIntoView({behavior: 'instant', block: 'center'})", mark)
    ActionChains(driver).move_to_element(mark).perform()
    shown = WebDriverWait(driver, 20).until(
        lambda _: driver.find_element(By.CSS_SELECTOR, "#vg-tooltip-element.visible").text
    )
    assert "claimed, ×" in shown


def test_every_figure_has_its_table_behind_it(driver, made):
    open_page(driver, made)
    for figure in driver.find_elements(By.TAG_NAME, "figure"):
        rows = figure.find_elements(By.CSS_SELECTOR, "details tbody tr")
        assert rows, figure.get_attribute("id")
        assert figure.find_element(By.TAG_NAME, "figcaption").text


def test_the_scripts_stand_in_the_page_once_and_it_is_small(made):
    page = (made / "index.html").read_text()
    assert page.count("window.vegaEmbed=") == 1
    assert all(each.startswith("#") for each in Elements(page).references)
    assert len(page.encode()) < 2_000_000


def test_the_picture_is_a_small_png(made):
    picture = (made / "picture.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 150_000


def test_without_any_source_the_page_says_how_to_fill_each_section(tmp_path):
    nothing = [word for flag in ("--records", "--asv", "--nights", "--gate") for word in (flag, tmp_path / "none")]
    done = report(*nothing, "--only-read", "--output", tmp_path / "index.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "index.html").read_text()
    for section in ("speed-up", "concurrency", "gpu-wait", "memory", "peers", "history", "gate"):
        begin = page.index(f'<section id="{section}"')
        assert 'class="missing"' in page[begin : page.index("</section>", begin)], section
    assert "is not there: no records" in done.stderr


def test_a_page_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    done = report("--only-read", "--records", tmp_path / "none", "--output", tmp_path / "file" / "index.html")
    assert done.returncode == 1
    assert "bench.report: " in done.stderr
    assert "Traceback" not in done.stderr
