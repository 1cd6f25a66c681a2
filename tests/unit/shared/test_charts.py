"""A chart is one SVG element that a page can hold, with axes, a legend and outages."""

import re
from xml.etree import ElementTree

import pytest

from shared.charts import COLOURS, LETTER_PIXELS, REGION_COLOURS, Chart, find_highest

RATES: dict[str, list[float | None]] = {"ea<st": [1.0, 2.0, None, 4.0], "west": [0.5, 0, 1, 1]}


def draw() -> ElementTree.Element:
    chart = Chart('what "it" is', 10, 14, "time (s)")
    panel = chart.add_panel("rates & more", 100, find_highest(RATES))
    panel.draw_stack(RATES, REGION_COLOURS, unit="a second", begin=10)
    below = chart.add_panel("waits", 50, 0)
    below.draw_line("west", "region1", [(10, 0), (99, 7)])
    panel.mark_outage(11.5, 13, "ea<st: lost")
    panel.mark_time(11.5, "lost at <11.5>", "bad", is_before=True)
    return ElementTree.fromstring(chart.write())


def boxes(svg: ElementTree.Element, kind: str) -> list[dict[str, str]]:
    return [one.attrib for one in svg.iter("rect") if one.get("class") == kind]


def test_bars_stand_on_each_other_and_what_is_not_known_has_none() -> None:
    svg = draw()

    east, west = boxes(svg, "region0"), boxes(svg, "region1")
    assert (len(east), len(west)) == (3, 3)
    # The axis ends at 6, and is 100 pixels high.
    assert [float(one["height"]) for one in east] == [16.67, 33.33, 66.67]
    bottom = float(west[0]["y"]) + float(west[0]["height"])
    assert bottom == pytest.approx(float(east[0]["y"]), abs=0.02)
    assert all(0 <= float(one["x"]) <= 960 for one in (*east, *west))


def test_texts_of_strangers_are_texts_and_the_legend_names_what_is_drawn() -> None:
    svg = draw()

    texts = [one.text for one in svg.iter("text")]
    assert {"rates & more", "ea<st", "west", "ea<st: lost", "lost at <11.5>"} <= {*texts}
    assert {"10", "12", "14", "time (s)"} <= {*texts}
    assert svg.get("aria-label") == 'what "it" is'
    (outage,) = boxes(svg, "outage")
    assert float(outage["width"]) == round((960 - 56 - 14) * 1.5 / 4, 2)


def test_a_time_at_the_edge_is_not_cut() -> None:
    chart = Chart(
        "an hour", 0, 3_600, "time", 720, lambda at: f"{at // 3600:02.0f}:{at % 60:02.0f}"
    )
    chart.add_panel("rates", 100, 1)
    svg = ElementTree.fromstring(chart.write())

    last = next(one for one in svg.iter("text") if one.text == "01:00")
    assert last.get("text-anchor") == "middle"
    assert float(last.attrib["x"]) + len("01:00") * LETTER_PIXELS / 2 <= 720


def test_what_lies_outside_is_drawn_at_the_edge_and_each_colour_is_a_variable() -> None:
    svg = draw()

    (line,) = svg.iter("polyline")
    assert [one.split(",")[0] for one in line.attrib["points"].split()] == ["56.00", "946.00"]
    text = ElementTree.tostring(svg, encoding="unicode")
    assert {*re.findall(r"#[0-9a-f]{6}", text)} <= {*COLOURS.values()}
    assert re.findall(r"(?<![-,\w(])#[0-9a-f]{6}", text) == []
    assert "http" not in text
