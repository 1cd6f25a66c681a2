"""`python -m demo up`: the stack to play with, and a few things to try."""

import json
import time

from rich.console import Console
from rich.text import Text

from demo.data import data_directory
from demo.options import Options
from demo.stack import Stack, stack

TRY = """\
Things to try:

  curl {control}/counters                      what every component counted, what the queues hold
  curl {control}/hosts                         which hosts run, and where their logs are
  curl {host}/admin/functions?code=lockstep-local      the functions of the app
  curl -X POST {control}/faults -d '{{"component": "servicebus.{region}", "action": "down"}}'
  curl -X POST {control}/hosts/{region} -d '{{"action": "kill"}}'
  curl -X POST {control}/hosts/{region} -d '{{"action": "start"}}'
  curl -X DELETE {control}/faults              mend everything

Any Azure SDK takes the connection strings above. Ctrl-C stops everything."""


def up(options: Options) -> int:
    """Start the stack and keep it up until Ctrl-C."""
    console = Console(highlight=False)
    with data_directory(options):
        console.print("starting Azure on this machine")
        with stack(options.data / "cloud", options.logs) as here:
            keep_up(console, here)
    return 0


def keep_up(console: Console, here: Stack) -> None:
    """Say how to reach the stack and wait; raises ChildFailed when it ends by itself."""
    console.print(Text(invitation(here)), soft_wrap=True)
    while here.child.is_running:
        time.sleep(0.5)
    raise here.child.failure("the local cloud ended")


def invitation(here: Stack) -> str:
    """Return the contract of the stack and a few things to try with it."""
    region = here.regions[0]
    control, host = here.contract["control"], here.contract["hosts"][region]
    tries = TRY.format(control=control, host=host, region=region)
    return f"\n{json.dumps(here.contract, indent=2)}\n\n{tries}"
