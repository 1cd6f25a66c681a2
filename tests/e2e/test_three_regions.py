"""A third region on one machine: one effect for three copies, and each output in every region."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.failures import CommandFailed
from cli.regions import CONFIG, keep_config
from local.testing.patience import until
from proof.testbed.cloud import ROOT, running_cloud
from tests.e2e.stack import Stack, assert_once_and_in_order, flights, shot

pytestmark = pytest.mark.e2e


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    config = keep_config(CONFIG, ["north"], tmp_path)
    with running_cloud("--app", str(ROOT), "--config", str(config), logs=tmp_path) as cloud:
        yield Stack(cloud)


async def test_three_copies_have_one_effect_and_its_output_reaches_three_regions(
    stack: Stack,
) -> None:
    sent = flights(sessions=4, each=5)

    await stack.send({**sent, "game": [shot("game", 0, 3)]}, LOCKSTEP_SECONDARY_DELAY_SECONDS="1")
    done = dict.fromkeys(("east", "west", "north"), 4 * 5 + 2)
    until(
        lambda: {region: stack.completed(region) for region in stack.cloud.regions} == done,
        what="the end of the work in three regions",
    )

    entries = stack.entries()
    assert len(entries.pop("game")) == len(entries.pop("game/score")) == 1
    assert_once_and_in_order(entries, sent)


@pytest.mark.parametrize("name", ["North", "", "southeast2", "north-2"])
def test_what_cannot_name_a_region_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="cannot name a region"):
        keep_config(CONFIG, [name], tmp_path)


def test_a_run_does_not_go_on_with_other_regions_than_it_began_with(tmp_path: Path) -> None:
    keep_config(CONFIG, ["north"], tmp_path)

    with pytest.raises(CommandFailed, match="begun with the regions east, west, north and not"):
        keep_config(CONFIG, [], tmp_path)
