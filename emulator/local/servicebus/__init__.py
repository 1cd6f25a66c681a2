"""A Service Bus namespace on one machine, for the real SDKs: AMQP 1.0 over TCP, with Qpid Proton.

    server.py      the namespace: its thread, its socket and its clock
    connection.py  one client's connection: Proton's events, and the links that they are about
    admin_api/     entities that clients make over HTTP, and their XML
    nodes/         `$cbs` and `$management`, where clients ask something and wait for the answer
    links/         the broker's ends of clients' links, over which they send, receive and ask
    broker.py      transactions and injected faults
    entities/      queues, sessions, topics, locks, duplicates, storage; no I/O but the store
    config.py      the declaration of a namespace
    rules.py       the filters of subscriptions
    amqp/          encoded messages, frames, what comes before AMQP, the wire, error conditions
    message.py     a message as it was sent, and as a queue stores it

Each of them imports only what stands below it.

A send goes from `BrokerConnection.data_received` through `MessageIncomingLink.on_delivery`, the
`Interceptor` and `MessagingEntity.send` into the queue's indexes and store; when the transaction
ends, the store commits, and only then the client gets its disposition.
"""
