"""What differs from message to message, or from region to region, does not split a cause."""

import pytest

from shared.domain.standstill import Standstill, StandstillKind, count_causes

HALT, BLOCKED, PENDING = StandstillKind.HALT, StandstillKind.BLOCKED, StandstillKind.PENDING
UUID = "0b6e2f9c-1d1e-4c58-9d55-0c2f6f0f8a"
MISSING = "'out': Service Bus: The queue is missing, or it is disabled. (queue 'out' of {}: {})"


def generalise(cause: str, session: str, kind: StandstillKind = HALT, *regions: str) -> str:
    return Standstill(kind, session, 1.0, cause, regions=regions).general_cause


@pytest.mark.parametrize(
    ("first", "second", "general"),
    [
        ("no stock", "no stock", "no stock"),
        ("account s-1 is closed", "account s-2 is closed", "account … is closed"),
        ("row 7 of 12", "row 131 of 12", "row … of …"),
        (f"order {UUID}11 is unknown", f"order 5{UUID[1:]}12 is unknown", "order … is unknown"),
        (f"order_{UUID}11 is unknown", f"order_5{UUID[1:]}12 is unknown", "order_… is unknown"),
        ("id 77ad3f1b09c2 again", "id 01ad3f1b09c2ffee again", "id … again"),
        ("stock defaced", "stock decoded", None),
        # A handler speaks of places of its own, and of whom it called.
        ("gate east is closed", "gate west is closed", None),
        ("a.servicebus.windows.net is full", "b.servicebus.windows.net is full", None),
    ],
)
def test_a_fault_is_told_without_its_session_ids_and_numbers(
    first: str, second: str, general: str | None
) -> None:
    found = [generalise(first, "s-1", HALT, "east"), generalise(second, "s-2", HALT, "west")]

    assert found == ([general, general] if general else [first, second])


def track(guid: str, gateway: str, moment: str, tracker: str) -> str:
    """What Azure adds to the text of an error."""
    return f"TrackingId:{guid}_{gateway}, SystemTracker:{tracker}, Timestamp:{moment}"


@pytest.mark.parametrize(
    ("said", "general"),
    [
        # By a name in front, or by a host; the tracker may have several parts, and colons.
        (
            "The entity 'sb://{name}.servicebus.windows.net/out' could not be found. {}. Error: x.",
            "The entity 'sb://….servicebus.windows.net/out' could not be found. … Error: x.",
        ),
        (
            "The messaging entity '{name}:Queue:out~15|out' could not be found. {} {}",
            "The messaging entity '…:Queue:out~…|out' could not be found. …",
        ),
        ("Access to sb://{name}.servicebus.chinacloudapi.cn/out. Reference:8d48b6-8{id}, {}", None),
        # It was cut off in the middle of an id.
        ("Entity 'out' is disabled. TrackingId:{id}8cead2de-8b10-430a-8", None),
    ],
)
def test_a_queue_that_takes_nothing_is_one_cause_in_every_region(
    said: str, general: str | None
) -> None:
    parts = {
        "east": ("lockstep-east-7fq", "8cead2de-8b10-430a-8b99-1c0f390fee29", "G11"),
        "west": ("lockstep-west-x2", "f026f15c930d4bc395981c62fbd3b397", "B2"),
    }
    causes = dict[str, str]()
    for region, (name, guid, gateway) in parts.items():
        tracker = f"{name}.servicebus.windows.net:out(address:/out,filter:[])"
        tracked = track(guid, gateway, f"2026-11-28T0{len(name)}:04:00", tracker)
        causes[region] = MISSING.format(region, said.format(tracked, tracked, name=name, id=guid))

    found = {
        generalise(cause, f"s-{region}", BLOCKED, *regions)
        for region, cause in causes.items()
        for regions in ((region,), ("east", "west"))
    }

    assert len(found) == 1
    assert general is None or found == {MISSING.format("…", general)}


def test_another_queue_or_another_reason_is_another_cause_and_a_late_region_is_named() -> None:
    causes = [MISSING.format("east", "not found"), MISSING.format("east", "disabled")]
    causes.append(causes[0].replace("'out'", "'other'"))

    assert len({generalise(one, "s", BLOCKED, "east") for one in causes}) == 3
    late = "outputs have not reached east"
    assert generalise(late, "s", PENDING, "east") == late


def test_the_regions_of_one_cause_are_counted_together() -> None:
    regions = [("east",), ("west",), ("east", "west"), ("west", "east")]
    found = [
        Standstill(BLOCKED, f"s-{n}", 9.0 - n, MISSING.format(several[0], "x"), regions=several)
        for n, several in enumerate(regions)
    ]

    (cause,) = count_causes(found)

    assert (cause.cause, cause.example) == (MISSING.format("…", "x"), found[0].cause)
    assert (cause.count, cause.since) == (4, 6.0)
