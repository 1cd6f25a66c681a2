"""A fuzzer that knows the structure of AMQP frames and of requests to Cosmos DB."""
