"""The statuses of aircraft, and a purchase of five steps, each a request to the payment server.

Before its first step and after its last one the handler says to the server that it is there: both
are no steps, so each run says them anew.
"""

import os
from typing import Any

from aiohttp import ClientSession, ClientTimeout
from pydantic import BaseModel

from functions.handlers import tracking
from lockstep import Context, Handlers, Kind, NotDone, OnUnknown, Settings, ask, build_app, connect

# By its step: what the server knows of it, and so what becomes of it when its answer is lost.
WAYS = {
    "reserve": "asked",
    "charge": "keyed",
    "ship": "blind",
    "book": "asked",
    "thank": "keyed",
}

handlers = Handlers(dict(tracking.handlers.by_type))


class Purchase(BaseModel):
    """The receipts of what was bought, by step."""

    receipts: dict[str, str] = {}


class Buy(BaseModel):
    """What is bought, and for how much."""

    item: str
    cents: int


async def call_server(
    method: str, path: str, session: str, key: str, body: Any = None
) -> tuple[int, Any]:
    """The status and the document of an answer."""
    headers = {"Idempotency-Key": key, "Session": session, "Who": os.environ["LOCKSTEP_REGION"]}
    # Long enough for whatever the server holds.
    async with (
        ClientSession(timeout=ClientTimeout(total=300)) as client,
        client.request(
            method, f"{os.environ['PAYMENTS_URL']}/{path}", json=body, headers=headers
        ) as answer,
    ):
        return answer.status, await answer.json()


@handlers.register("buy", state=Purchase, body=Buy, kind=Kind.EFFECTFUL)
async def buy(purchase: Purchase, body: Buy, context: Context) -> Purchase:
    """Buy in five steps, one after another."""
    session = context.message.session

    async def charge(path: str, *, key: str) -> str:
        status, answer = await call_server("POST", path, session, key, body.model_dump())
        if status != 200:
            raise ConnectionError(f"the server answered {status}")
        return str(answer["receipt"])

    async def find(path: str, *, key: str) -> str:
        status, answer = await call_server("GET", f"{path}?key={key}", session, key)
        if status == 404:
            raise NotDone("the server knows no such key")
        return str(answer["receipt"])

    def policy_of(step: str) -> Any:
        async def find_step(*, key: str) -> str:
            return await find(f"asked/{step}", key=key)

        return {"asked": ask(find_step), "keyed": OnUnknown.REPEAT, "blind": OnUnknown.HALT}[
            WAYS[step]
        ]

    await call_server("GET", "said/began", session, "")
    receipts = {
        step: await context.step(step, charge, f"{way}/{step}", on_unknown=policy_of(step))
        for step, way in WAYS.items()
    }
    await call_server("GET", "said/ends", session, "")
    return Purchase(receipts={**purchase.receipts, **receipts})


app = build_app(connect(Settings.read(os.environ), handlers))
