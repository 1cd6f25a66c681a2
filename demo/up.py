"""`python -m demo up`: a cloud to play with, and a few things to try."""

import json
import time
from contextlib import AbstractContextManager

from rich.console import Console
from rich.text import Text

from demo.options import DemoOptions
from testbed.cloud import SECONDARY_DELAY_SECONDS, CloudProcess, running_cloud

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


def start_cloud(options: DemoOptions) -> AbstractContextManager[CloudProcess]:
    """Run the cloud over the data directory for one `with` block; raises ChildFailed."""
    delay = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": str(SECONDARY_DELAY_SECONDS)}
    data = ("--data", str(options.data / "cloud"))
    return running_cloud(*data, logs=options.logs, settings=delay)


def up(options: DemoOptions) -> int:
    console = Console(highlight=False)
    with options.open_directory():
        console.print("starting Azure on this machine")
        with start_cloud(options) as cloud:
            keep_up(console, cloud)
    return 0


def keep_up(console: Console, cloud: CloudProcess) -> None:
    """Say how to reach the cloud and wait; raises ChildFailed when it ends by itself."""
    region = cloud.regions[0]
    control, host = cloud.contract["control"], cloud.contract["hosts"][region]
    tries = TRY.format(control=control, host=host, region=region)
    contract = json.dumps(cloud.contract, indent=2)
    console.print(Text(f"\n{contract}\n\n{tries}"), soft_wrap=True)
    while cloud.child.is_running:
        time.sleep(0.5)
    raise cloud.child.failure("the local cloud ended")
