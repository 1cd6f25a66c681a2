"""A provider outside that handlers call in steps, and a purchase of five steps that calls it."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pydantic import BaseModel

from shared.domain.handler import Context, Handled, Handlers, Kind, Output
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.steps import AskOutside, NotDone, OnUnknown, StepFailed, ask
from tests.business import Happening, nothing
from tests.world import World, message

STEPS = ("reserve", "charge", "ship", "tell", "book")


BUY = replace(message(0, kind="buy"), body=b'{"item":"book"}')
RECEIPTS = [f"{name} book" for name in STEPS]
POLICIES = ("ask", "repeat", "halt")
KINDS = ("buy", "gather")


class Purchase(BaseModel):
    """What a session remembers: the receipts of every step, and what was refused."""

    receipts: list[str] = []
    refused: list[str] = []


class Buy(BaseModel):
    """What is bought."""

    item: str = "book"


class Bought(BaseModel):
    """What is told of a purchase."""

    receipts: list[str]


@dataclass
class Provider:
    """Everything that was done, in order, as name and key.

    One that `knows_keys` does each key once; one that `is_blind` finds nothing. What it gives has a
    `size`, which is made up of spaces.
    """

    knows_keys: bool = True
    is_blind: bool = False
    done: list[tuple[str, str]] = field(default_factory=list)
    receipts: dict[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    looked_up: list[str] = field(default_factory=list)
    before: Happening = nothing
    after: Happening = nothing
    size: int = 0

    def act(self, name: str) -> Callable[..., object]:
        """The call of a step."""

        async def call(item: str, *, key: str) -> str:
            self.calls.append(name)
            await self.before()
            if not (self.knows_keys and (name, key) in self.done):
                self.done.append((name, key))
                self.receipts[key] = f"{name} {item}".ljust(self.size)
            await self.after()
            return self.receipts[key]

        return call

    def look_up(self, name: str) -> AskOutside:
        """How it is asked what became of a step."""

        async def look(*, key: str) -> str:
            self.looked_up.append(name)
            await asyncio.sleep(0)
            if self.is_blind or (name, key) not in self.done:
                raise NotDone(f"nothing is known of {key}")
            return self.receipts[key]

        return ask(look)

    def policy(self, name: str, kind: str) -> OnUnknown | AskOutside:
        """The policy of a step, one of POLICIES."""
        return self.look_up(name) if kind == "ask" else OnUnknown(kind)

    @property
    def names(self) -> list[str]:
        """What was done, by name."""
        return [name for name, _ in self.done]


def purchases(provider: Provider, policy: str = "ask", attempts: int = 3) -> Handlers:
    """Handlers of a purchase in five steps, one after another or side by side."""
    handlers = Handlers()

    @handlers.register("buy", state=Purchase, body=Buy, kind=Kind.EFFECTFUL, attempts=attempts)
    async def buy(purchase: Purchase, body: Buy, context: Context) -> Handled[Purchase]:
        """Buy in steps; what is refused is left out."""
        receipts, refused = [], []
        for name in STEPS:
            try:
                act = provider.act(name)
                on_unknown = provider.policy(name, policy)
                receipt = await context.step(name, act, body.item, on_unknown=on_unknown)
                receipts.append(receipt.rstrip())
            except StepFailed as failed:
                refused.append(failed.step)
        whole = Purchase(receipts=purchase.receipts + receipts, refused=purchase.refused + refused)
        return Handled(whole, (Output("bought", Bought(receipts=receipts)),))

    @handlers.register("gather", state=Purchase, body=Buy, kind=Kind.EFFECTFUL, attempts=attempts)
    async def gather(purchase: Purchase, body: Buy, context: Context) -> Handled[Purchase]:
        """Buy in steps side by side, and the last one after all others."""
        *first, last = STEPS
        receipts = await asyncio.gather(
            *(
                context.step(
                    one, provider.act(one), body.item, on_unknown=provider.policy(one, policy)
                )
                for one in first
            )
        )
        receipts.append(
            await context.step(
                last, provider.act(last), body.item, on_unknown=provider.policy(last, policy)
            )
        )
        receipts = [receipt.rstrip() for receipt in receipts]
        return Handled(
            Purchase(receipts=purchase.receipts + receipts, refused=purchase.refused),
            (Output("bought", Bought(receipts=receipts)),),
        )

    return handlers


def bought(world: World) -> list[str]:
    states = [e["state"] for e in world.entries() if "state" in e]
    return list(states[-1]["receipts"]) if states else []


def beside(world: World) -> list[str]:
    """Results that lie beside claims, by the ids of their documents."""
    stored = world.journal.partitions["acc-7"].items()
    return [one for one, document in stored if "result" in document]


def happened(step: str, result: object = None) -> ResolutionRequest:
    body = json.dumps(result).encode()
    return ResolutionRequest(ResolutionAction.HAPPENED, "Ada", "it is booked", body, step=step)


def not_happened(step: str) -> ResolutionRequest:
    return ResolutionRequest(ResolutionAction.NOT_HAPPENED, "Ada", "no trace of it", step=step)


async def decide_unknown(world: World, provider: Provider) -> int:
    """A person looks at the provider's log, and says of each unknown step what it says."""
    decided = 0
    while (unknown := world.entries()[-1].get("unknown")) is not None:
        step = unknown[0]
        is_there = step in provider.names
        verb = happened(step, f"{step} book") if is_there else not_happened(step)
        await world.worker("west").resolver.resolve("acc-7", verb)
        decided += 1
    return decided
