"""The states of all sagas over time as inline SVG: how many run, are completed, are compensated."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil

from demo.chart import Scale, label, rounded_up
from demo.sagas.books import Saga

WIDTH, LEFT, RIGHT = 960, 52, 14
TOP, BOTTOM, HEIGHT = 40, 320, 352
TICKS = 4
# From below: what is over well, what was undone, what needs a person, what is on its way.
LAYERS = ("completed", "compensated", "failed", "running")


@dataclass(frozen=True, slots=True)
class Picture:
    """What there is to draw; times are seconds since 1970, by the store's clock."""

    sagas: Sequence[Saga]
    outage: tuple[float, float] | None
    region: str


def draw(picture: Picture) -> str:
    """Draw the picture as one SVG element; of no sagas there is none."""
    if not picture.sagas:
        return ""
    begin = min(saga.started_at for saga in picture.sagas)
    end = max(saga.ended_at or saga.started_at for saga in picture.sagas) + 1
    across = Scale(begin, end, LEFT, WIDTH - RIGHT)
    high = rounded_up(len(picture.sagas))
    upward = Scale(0, high, BOTTOM, TOP)
    parts = [
        *outage(picture, across),
        *bars(picture, across, upward),
        *axes(begin, end, across, upward, high),
        label(LEFT, TOP - 22, "sagas by state", "heading"),
    ]
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n' + "\n".join(parts) + "\n</svg>"


def state_at(saga: Saga, at: float) -> str | None:
    """The layer a saga belongs to at a time; None before it started."""
    if at < saga.started_at:
        return None
    if saga.ended_at is None or at < saga.ended_at:
        return "running"
    return saga.state if saga.state in LAYERS else "failed"


def bars(picture: Picture, across: Scale, upward: Scale) -> Iterator[str]:
    """Draw one stack for each second."""
    first, last = int(across.low), ceil(across.high)
    for second in range(first, last):
        states = [state_at(saga, second) for saga in picture.sagas]
        left, right = across(second), across(second + 1)
        base = 0
        for layer in LAYERS:
            count = states.count(layer)
            if count:
                top, height = upward(base + count), upward(base) - upward(base + count)
                told = escape(f"{count} {layer} after {second - first} s")
                yield (
                    f'<rect class="{layer}" x="{left}" y="{top}" width="{right - left:.1f}" '
                    f'height="{height:.1f}"><title>{told}</title></rect>'
                )
            base += count


def outage(picture: Picture, across: Scale) -> Iterator[str]:
    """Shade the time for which a region was gone."""
    if picture.outage is None:
        return
    left, right = (across(min(max(at, across.low), across.high)) for at in picture.outage)
    width = max(0.0, right - left)
    yield f'<rect class="outage" x="{left}" y="{TOP}" width="{width:.1f}" height="{BOTTOM - TOP}"/>'
    yield label(left + 4, TOP - 4, f"{picture.region} is dead", "turn")


def axes(begin: float, end: float, across: Scale, upward: Scale, high: float) -> Iterator[str]:
    """Write counts on the left and seconds below."""
    for tick in range(TICKS + 1):
        value = high * tick / TICKS
        yield label(LEFT - 8, upward(value) + 4, f"{value:g}", "tick", "end")
    step = max(1, ceil((end - begin) / 12))
    for at in range(0, ceil(end - begin), step):
        yield label(across(begin + at), BOTTOM + 18, f"{at} s", "tick", "middle")
