"""The way of a message as a sequence picture: a lane for each session, a row for each hop."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from shared.charts import paint, write_text
from shared.domain.journal import Status

# As it is told over HTTP: with a status where it is an entry.
type DescribedHop = Mapping[str, Any]

LANE, ROW, TOP, MARGIN = 210, 44, 40, 20
# So many letters of a name fit into a lane.
LETTERS = 26


def draw_sequence(
    hops: Sequence[DescribedHop], start: tuple[str, int], link_hop: Callable[[str, int], str]
) -> str:
    """Return the hops of a way as SVG; the entry it was asked for is `start`, and is bold.

    An arrow is an output, and leads from the session that sent it. What has no entry is hollow.
    """
    lanes = {
        name: place for place, name in enumerate(dict.fromkeys(one["session"] for one in hops))
    }
    width, height = MARGIN + LANE * len(lanes), TOP + ROW * len(hops) + MARGIN
    parts = []
    for name, place in lanes.items():
        x = MARGIN + LANE * place
        ends = f'x1="{x}" x2="{x}" y1="{TOP - 12}" y2="{height - 8}"'
        parts.append(f'<line {ends} stroke="{paint("rule")}"/>')
        parts.append(write_named(x - 6, TOP - 20, name, bold=True))
    for row, hop in enumerate(hops):
        x, y = MARGIN + LANE * lanes[hop["session"]], TOP + ROW * row + 16
        if "before" in hop:
            parts += draw_arrow(MARGIN + LANE * lanes[hops[hop["before"]]["session"]], x, y, hop)
        is_start = "status" in hop and (hop["session"], hop["position"]) == start
        mark = draw_hop(x, y, hop, is_start=is_start)
        if "position" in hop:
            target = escape(link_hop(hop["session"], hop["position"]))
            mark = f'<a href="{target}">{mark}</a>'
        parts.append(mark)
    what = f"the way of a message over {len(lanes)} session{'s' if len(lanes) > 1 else ''}"
    # What is put together here was escaped part by part, so the page may show it as it is.
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="group"'
        f' aria-label="{what}" font-size="11" font-family="system-ui, sans-serif">'
        f"<title>{what}</title>\n" + "\n".join(parts) + "\n</svg>"
    )


def draw_hop(x: int, y: int, hop: DescribedHop, *, is_start: bool) -> str:
    """Return the mark of a hop, and what is said of it."""
    status = hop.get("status")
    colour = {None: "muted", Status.FAULTED: "bad", Status.COMPLETED: "good"}.get(status, "region1")
    fill = paint(colour) if status else "none"
    mark = f'<circle cx="{x}" cy="{y}" r="5" fill="{fill}" stroke="{paint(colour)}"/>'
    return mark + write_named(x + 9, y + 4, label_hop(hop), bold=is_start)


def label_hop(hop: DescribedHop) -> str:
    """Say what a hop is in a few words."""
    if "status" in hop:
        return f"position {hop['position']}: {hop['status']}"
    if "position" in hop:
        return f"position {hop['position']}, as above"
    return str(hop["output"].get("said", "not known"))


def draw_arrow(left: int, x: int, y: int, hop: DescribedHop) -> list[str]:
    """Return the arrow of an output to where it went; one to its own session is a bow."""
    stroke, tip = f'stroke="{paint("muted")}" fill="none"', x + (-7 if left < x else 7)
    if left == x:
        line = f"M{x} {y - ROW + 10} q-14 {ROW // 2 - 5} -3 {ROW - 16}"
        return [f'<path d="{line}" {stroke}/>', write_type(x + 9, y - 9, hop, "start")]
    head = f"M{tip} {y} l{-6 if left < x else 6} -4 v8 z"
    return [
        f'<path d="M{left} {y} H{tip}" {stroke}/>',
        f'<path d="{head}" fill="{paint("muted")}"/>',
        write_type((left + tip) // 2, y - 5, hop, "middle"),
    ]


def write_type(x: int, y: int, hop: DescribedHop, side: str) -> str:
    return write_text(x, y, fit_lane(str(hop["output"].get("type", ""))), side=side)


def write_named(x: int, y: int, text: str, *, bold: bool = False) -> str:
    """A text that fits into a lane, with the whole of it where it is pointed at."""
    whole = f"<title>{escape(text)}</title>"
    return f"<g>{whole}{write_text(x, y, fit_lane(text), colour='text', bold=bold)}</g>"


def fit_lane(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
