"""A Service Bus namespace on one machine, for the real SDKs: AMQP 1.0 over TCP, with Qpid Proton.

    server.py, listener.py, config.py, broker.py
                 the namespace: its thread, its socket, its declaration; transactions and faults
    protocol/    Proton's connection, encoded messages, `$cbs`, `$management`, error conditions
    links/       the broker's ends of clients' links: transfers, credit, drain, settlement
    entities/    queues, sessions, topics, locks, duplicate detection, storage; no I/O but the store
    rules/       the filters of subscriptions

A send goes from `BrokerConnection.data_received` through `MessageIncomingLink.on_delivery`, the
`Interceptor` and `MessagingEntity.send` into the queue's indexes and store; when the transaction
ends, the store commits, and only then the client gets its disposition.
"""
