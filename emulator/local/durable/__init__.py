"""A region's task hub, as the Durable Functions extension has one."""

# How a host says, when it asks for work, how long its extension leaves the hub's queues without a
# look: seconds, 0 where it need not look.
POLLING_METADATA = "max-queue-polling-seconds"
