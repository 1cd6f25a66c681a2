"""The queues in Azure are the queues on one machine."""

import pytest

from tests.infra.parity import azure_queues, local_config, local_queues, region_of

# A queue on one machine has no size of its own. In Azure it has the most of Premium:
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
SIZE = {"maxSizeInMegabytes": 80 * 1024}


@pytest.mark.parametrize("region", ["east", "west"])
def test_queues_in_azure_equal_the_local_queues_and_take_what_comes_for_long(region: str) -> None:
    local = local_queues(region, local_config())

    assert azure_queues(region_of(region)) == {name: found | SIZE for name, found in local.items()}


@pytest.mark.parametrize("region", ["east", "west"])
def test_all_queues_belong_to_a_namespace_whose_neighbours_delay_no_session(region: str) -> None:
    template = region_of(region)
    parents = [template.resource(name)["parent"] for name in ("queue", "outputQueue", "errorQueue")]

    assert parents == [template.value("namespace")] * 3
    sku = template.resource("namespace")["sku"]
    assert sku == {"name": "Premium", "tier": "Premium", "capacity": 1}
