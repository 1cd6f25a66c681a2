"""The scenarios of a world, by name: accounts, orders, or one of these by the seed; and others."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from proof.simulation.work import accounts as account_business
from proof.simulation.work import diaries as diary_business
from proof.simulation.work import orders as order_business
from proof.simulation.work import trades as trade_business
from proof.simulation.work.account_workload import AccountMessages, EndingMessages
from proof.simulation.work.diary_workload import DiaryRequests
from proof.simulation.work.order_workload import OrderGenerator
from proof.simulation.world.clients import (
    NO_COUNTERPART,
    Correct,
    Counterpart,
    SagaRequest,
    uncorrected,
)
from proof.simulation.world.faults import SeededRandom
from proof.simulation.world.recorder import Violation
from proof.simulation.world.variant import Variant
from proof.simulation.world.workload import Workload
from proof.simulation.world.world import World
from shared.domain.handler import Handlers

# One in so many seeds runs orders, where any scenario will do.
ORDERS_EVERY = 3


@dataclass(frozen=True, slots=True)
class Scenario:
    """Handlers, the messages and saga requests for them, and what must hold in the end."""

    name: str
    handlers: Handlers
    load: Workload
    check: Callable[[World], Iterable[Violation]]
    correct: Correct = uncorrected
    saga_requests: tuple[SagaRequest, ...] = ()
    counterpart: Counterpart = NO_COUNTERPART


type ScenarioFactory = Callable[[SeededRandom, Variant], Scenario]


def accounts(rng: SeededRandom, variant: Variant) -> Scenario:
    return account_scenario("accounts", AccountMessages(rng.stream("workload"), variant))


def endings(rng: SeededRandom, variant: Variant) -> Scenario:
    return account_scenario("endings", EndingMessages(rng.stream("workload"), variant))


def account_scenario(name: str, messages: AccountMessages) -> Scenario:
    external = account_business.ExternalSystem()
    load = messages.workload()
    handlers = account_business.business(external)

    def check(world: World) -> Iterable[Violation]:
        return account_business.account_violations(world, load, external)

    return Scenario(name, handlers, load, check, account_business.corrected)


def orders(rng: SeededRandom, _: Variant) -> Scenario:
    load, requests = OrderGenerator(rng.stream("shopping")).generate()
    handlers, check = order_business.business(), order_business.order_violations
    return Scenario("orders", handlers, load, check, order_business.corrected, requests)


def asks(rng: SeededRandom, variant: Variant) -> Scenario:
    load = DiaryRequests(rng.stream("asking"), variant).workload()

    def check(world: World) -> Iterable[Violation]:
        return diary_business.diary_violations(world, load)

    return Scenario("asks", diary_business.business(), load, check)


def steps(rng: SeededRandom, variant: Variant) -> Scenario:
    external, exchange = account_business.ExternalSystem(), trade_business.Exchange()
    load = trade_business.TradeMessages(rng.stream("workload"), variant).workload()
    accounts_and_trades = [account_business.business(external), trade_business.business(exchange)]

    def check(world: World) -> Iterable[Violation]:
        yield from account_business.account_violations(world, load, external)
        yield from trade_business.trade_violations(world, exchange)

    handlers, correct = Handlers.joined(accounts_and_trades), account_business.corrected
    return Scenario("steps", handlers, load, check, correct, counterpart=exchange)


def any_scenario(rng: SeededRandom, variant: Variant) -> Scenario:
    return (accounts if rng.seed % ORDERS_EVERY else orders)(rng, variant)


SCENARIOS: dict[str, ScenarioFactory] = {
    "accounts": accounts,
    "orders": orders,
    "asks": asks,
    "endings": endings,
    "steps": steps,
    "any": any_scenario,
}
