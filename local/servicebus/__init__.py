"""A Service Bus namespace on one machine, for the real SDKs: AMQP 1.0 over TCP, with Qpid Proton.

    server.py    the namespace: its thread, its socket and its clock
    config.py    its declaration
    administration.py, atom.py   entities that clients make over HTTP, and their XML
    broker.py    transactions and injected faults
    links.py     what the broker's ends of clients' links have in common
    incoming_links.py, outgoing_links.py   over which clients send, and receive
    rules.py     the filters of subscriptions
    protocol/    Proton's connection, encoded messages, `$cbs`, `$management`, error conditions
    entities/    queues, sessions, topics, locks, duplicate detection, storage; no I/O but the store

A send goes from `BrokerConnection.data_received` through `MessageIncomingLink.on_delivery`, the
`Interceptor` and `MessagingEntity.send` into the queue's indexes and store; when the transaction
ends, the store commits, and only then the client gets its disposition.
"""
