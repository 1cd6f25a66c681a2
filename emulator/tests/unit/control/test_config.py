"""Reading local.config.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from local.config import HostsConfig, InvalidLocalConfig, fill_placeholders, load_config

GOOD: dict[str, Any] = {
    "UserConfig": {"Namespaces": [{"Name": "east", "Queues": [{"Name": "plain"}]}]},
    "Cosmos": {"Database": "d", "Containers": [{"Name": "c", "PartitionKey": "/id"}]},
    "Hosts": {"Regions": ["east"], "Values": {"A": "{region}"}},
}


def written(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "local.config.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_the_sample_is_read() -> None:
    config = load_config(Path(__file__).parents[3] / "local.config.json")

    assert [namespace.name for namespace in config.namespaces] == ["east", "west"]
    assert [container.name for container in config.cosmos.containers] == ["journal", "leases"]
    assert config.hosts.regions == ("east", "west")
    assert config.session_queue == "orders"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"Extra": 1}, "Extra"),
        ({"Cosmos": None}, "Cosmos"),
        ({"Cosmos": {"Database": ""}}, r"Cosmos\.Database"),
        ({"Cosmos": {"Database": "d", "Contaners": []}}, r"Cosmos\.Contaners"),
        ({"Cosmos": {"Database": "d", "Containers": [{"Name": "c"}]}}, r"\[0\]\.PartitionKey"),
        (
            {"Cosmos": {"Database": "d", "Containers": [{"Name": "c", "PartitionKey": "id"}]}},
            r"\[0\]\.PartitionKey",
        ),
        ({"Hosts": {"Regions": "east"}}, r"Hosts\.Regions"),
        ({"Hosts": {"Values": {"A": 1}}}, r"Hosts\.Values\.A"),
        ({"Hosts": {"Region": []}}, r"Hosts\.Region "),
        ({"Hosts": {"Regions": ["east", "east"]}}, r"Hosts\.Regions must have names that differ"),
        ({"Hosts": {"Regions": [""]}}, r"Hosts\.Regions must have names that differ"),
        ({"Hosts": {"Values": {"A": "{planet}"}}}, r"Hosts\.Values\.A: \{planet\}"),
        (
            {"Hosts": {"Regions": ["east"], "Values": {"A": "{durable.west}"}}},
            r"Hosts\.Values\.A: \{durable\.west\}",
        ),
        ({"UserConfig": {"Namespaces": [{"Name": "x", "Relays": []}]}}, "Relays"),
    ],
)
def test_a_bad_config_is_refused_by_the_name_of_the_key(
    tmp_path: Path, change: dict[str, Any], key: str
) -> None:
    with pytest.raises(InvalidLocalConfig, match=key):
        load_config(written(tmp_path, GOOD | change))


def test_a_file_that_is_not_json_or_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidLocalConfig, match="not JSON"):
        load_config(written(tmp_path, "{"))
    with pytest.raises(InvalidLocalConfig, match="No such file"):
        load_config(tmp_path / "absent.json")


def test_placeholders_are_replaced_and_unknown_ones_refused() -> None:
    assert fill_placeholders({"A": "<{region}>"}, {"region": "east"}) == {"A": "<east>"}
    with pytest.raises(InvalidLocalConfig, match=r"Hosts\.Values\.A: \{planet\}"):
        fill_placeholders({"A": "{planet}"}, {"region": "east"})


@pytest.mark.parametrize(
    ("values", "hubs"),
    [
        ({}, ()),
        ({"A": "{region}", "B": "{cosmos}"}, ()),
        ({"A": "{durable}"}, ("east", "west")),
        ({"A": "at {durable.west}"}, ("west",)),
        ({"A": "{durable.west}", "B": "{durable.east}"}, ("east", "west")),
    ],
)
def test_a_region_has_a_task_hub_if_a_value_asks_for_it(
    values: dict[str, str], hubs: tuple[str, ...]
) -> None:
    assert HostsConfig(("east", "west"), values).hubs == hubs
