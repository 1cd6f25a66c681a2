// @azure/service-bus, unchanged, against the namespace whose connection string is in SERVICE_BUS.
"use strict";

const assert = require("node:assert/strict");
const { after, before, test } = require("node:test");
const { ServiceBusClient } = require("@azure/service-bus");

const QUEUE = "parcels"; // plain
const SESSIONS = "flights";
const HASTY = "hasty"; // its locks last a second
const SHORT = "short"; // plain, its locks last a second
const UNIQUE = "unique"; // looks for duplicates
const TOPIC = "news";
const address = process.env.SERVICE_BUS;
const soon = { maxWaitTimeInMs: 30_000 };
let client;

function connect(connectionString = address, timeoutInMs = 30_000) {
  return new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0, timeoutInMs } });
}

before(() => (client = connect()));
after(() => client.close());

async function send(entity, ...messages) {
  const sender = client.createSender(entity);
  await sender.sendMessages(messages);
  await sender.close();
}

async function receive(receiver, count) {
  const received = [];
  while (received.length < count) {
    const messages = await receiver.receiveMessages(count - received.length, soon);
    assert.notEqual(messages.length, 0, `only ${received.length} of ${count} messages came`);
    received.push(...messages);
  }
  return received;
}

async function completeAll(receiver, count) {
  const messages = await receive(receiver, count);
  for (const message of messages) await receiver.completeMessage(message);
  return messages.map((message) => message.body);
}

async function closing(receiver, work) {
  try {
    return await work(receiver);
  } finally {
    await receiver.close();
  }
}

test("a session's messages arrive in order", async () => {
  const bodies = ["departed", { delayed: 7 }, "arrived"];
  await send(SESSIONS, ...bodies.map((body) => ({ body, sessionId: "JS1" })));
  await closing(await client.acceptSession(SESSIONS, "JS1"), async (receiver) => {
    assert.deepEqual(await completeAll(receiver, 3), bodies);
  });
});

test("an abandoned message comes back first, and a dead letter says why", async () => {
  await send(SESSIONS, { body: "a", sessionId: "JS2" }, { body: "b", sessionId: "JS2" });
  await closing(await client.acceptNextSession(SESSIONS), async (receiver) => {
    assert.equal(receiver.sessionId, "JS2");
    await receiver.abandonMessage((await receive(receiver, 1))[0]);
    const [again] = await receive(receiver, 1);
    assert.deepEqual([again.body, again.deliveryCount], ["a", 1]);
    await receiver.deadLetterMessage(again, { deadLetterReason: "unreadable" });
    assert.deepEqual(await completeAll(receiver, 1), ["b"]);
  });
  const dead = client.createReceiver(SESSIONS, { subQueueType: "deadLetter" });
  await closing(dead, async (receiver) => {
    const [message] = await receive(receiver, 1);
    assert.deepEqual([message.body, message.deadLetterReason], ["a", "unreadable"]);
    await receiver.completeMessage(message);
  });
});

test("a session has one holder, a state, and a lock that can be renewed", async () => {
  await closing(await client.acceptSession(SESSIONS, "JS3"), async (receiver) => {
    const before = receiver.sessionLockedUntilUtc;
    assert.ok((await receiver.renewSessionLock()) >= before);
    await receiver.setSessionState({ gate: 7 });
    await assert.rejects(client.acceptSession(SESSIONS, "JS3"), { code: "SessionCannotBeLocked" });
  });
  await closing(await client.acceptSession(SESSIONS, "JS3"), async (receiver) => {
    assert.deepEqual(await receiver.getSessionState(), { gate: 7 });
    await receiver.setSessionState(null);
  });
});

test("when no session appears in time the receiver is told so", async () => {
  const impatient = connect(address, 2000);
  await assert.rejects(impatient.acceptNextSession(SESSIONS), { code: "ServiceTimeout" });
  await impatient.close();
});

test("messages are received as they come", async () => {
  await send(SESSIONS, { body: "a", sessionId: "JS4" }, { body: "b", sessionId: "JS4" });
  await closing(await client.acceptSession(SESSIONS, "JS4"), async (receiver) => {
    const bodies = await new Promise((resolve, reject) => {
      const seen = [];
      receiver.subscribe({
        processMessage: async (message) => {
          seen.push(message.body);
          if (seen.length === 2) setImmediate(resolve, seen);
        },
        processError: async ({ error }) => reject(error),
      });
    });
    assert.deepEqual(bodies, ["a", "b"]);
  });
});

async function acceptOnceFree(entity, session) {
  for (;;) {
    try {
      return await client.acceptSession(entity, session);
    } catch (error) {
      assert.equal(error.code, "SessionCannotBeLocked");
    }
  }
}

test("a lost session lock is told", async () => {
  await send(HASTY, { body: "slow", sessionId: "JS5" });
  const unrenewed = { maxAutoLockRenewalDurationInMs: 0 };
  await closing(await client.acceptSession(HASTY, "JS5", unrenewed), async (receiver) => {
    const [message] = await receive(receiver, 1);
    const successor = await acceptOnceFree(HASTY, "JS5");
    await assert.rejects(receiver.completeMessage(message), { code: "SessionLockLost" });
    await successor.close();
  });
});

test("a scheduled message is peeked before it is due, and may be cancelled", async () => {
  const sender = client.createSender(QUEUE);
  const due = new Date(Date.now() + 60_000);
  const numbers = await sender.scheduleMessages([{ body: "a" }, { body: "b" }], due);
  await closing(client.createReceiver(QUEUE), async (receiver) => {
    const peeked = await receiver.peekMessages(5);
    assert.deepEqual(
      peeked.map((message) => [message.body, message.state]),
      [["a", "scheduled"], ["b", "scheduled"]],
    );
    await sender.cancelScheduledMessages(numbers);
    assert.deepEqual(await receiver.peekMessages(5, { fromSequenceNumber: numbers[0] }), []);
  });
  await sender.scheduleMessages({ body: "c" }, new Date(Date.now() + 300));
  await closing(client.createReceiver(QUEUE), async (receiver) => {
    assert.deepEqual(await completeAll(receiver, 1), ["c"]);
  });
});

test("a batch is filled up to the limit and arrives whole; more is refused", async () => {
  const sender = client.createSender(QUEUE);
  const batch = await sender.createMessageBatch();
  const body = "x".repeat(100_000);
  while (batch.tryAddMessage({ body }));
  assert.equal(batch.count, 10);
  await sender.sendMessages(batch);
  await closing(client.createReceiver(QUEUE), async (receiver) => {
    assert.equal((await completeAll(receiver, batch.count)).join(""), body.repeat(batch.count));
  });
  const large = { body: Buffer.alloc(1024 * 1024 + 1) };
  await assert.rejects(sender.sendMessages(large), { code: "MessageSizeExceeded" });
});

test("a deferred message is received by its number", async () => {
  await send(QUEUE, { body: "later" });
  await closing(client.createReceiver(QUEUE), async (receiver) => {
    const [message] = await receive(receiver, 1);
    await receiver.deferMessage(message);
    const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
    assert.equal(deferred.body, "later");
    await receiver.completeMessage(deferred);
  });
});

test("properties given with an abandon are there when the message comes again", async () => {
  await send(QUEUE, { body: "a", applicationProperties: { own: "kept" } });
  await closing(client.createReceiver(QUEUE), async (receiver) => {
    const [message] = await receive(receiver, 1);
    await receiver.abandonMessage(message, { tries: 1 });
    const [again] = await receive(receiver, 1);
    assert.deepEqual(again.applicationProperties, { own: "kept", tries: 1 });
    await receiver.completeMessage(again);
  });
});

test("received and deleted is gone", async () => {
  await send(QUEUE, { body: "a" });
  const receiver = client.createReceiver(QUEUE, { receiveMode: "receiveAndDelete" });
  await closing(receiver, async () => {
    assert.equal((await receive(receiver, 1))[0].body, "a");
  });
});

test("a repeated message id is dropped", async () => {
  await send(UNIQUE, { body: "first", messageId: "m" });
  await send(UNIQUE, { body: "second", messageId: "m" });
  await closing(client.createReceiver(UNIQUE), async (receiver) => {
    assert.deepEqual(await completeAll(receiver, 1), ["first"]);
    assert.deepEqual(await receiver.peekMessages(1), []);
  });
});

test("a subscription's rules are listed, made and deleted", async () => {
  const rules = client.createRuleManager(TOPIC, "departures");
  await rules.createRule("gate", { applicationProperties: { gate: 7 } });
  const listed = [];
  for await (const rule of rules.listRules()) listed.push(rule);
  assert.deepEqual(listed.map((rule) => rule.name), ["departed", "gate"]);
  assert.equal(listed[0].filter.subject, "departed");
  assert.deepEqual(listed[1].filter.applicationProperties, { gate: 7 });
  await assert.rejects(rules.createRule("sql", { sqlExpression: "gate > 7" }), /gate > 7/);

  await send(TOPIC, { body: "a", applicationProperties: { gate: 7 } }, { body: "b" });
  await rules.deleteRule("gate");
  await send(TOPIC, { body: "c", applicationProperties: { gate: 7 } });
  await closing(client.createReceiver(TOPIC, "departures"), async (receiver) => {
    assert.deepEqual(await completeAll(receiver, 1), ["a"]);
    assert.deepEqual(await receiver.peekMessages(1), []);
  });
  await closing(client.createReceiver(TOPIC, "everything"), async (receiver) => {
    assert.deepEqual(await completeAll(receiver, 3), ["a", "b", "c"]);
  });
});

test("what does not exist is not found", async () => {
  const sender = client.createSender("nowhere");
  await assert.rejects(sender.sendMessages({ body: "a" }), { code: "MessagingEntityNotFound" });
});

test("a wrong key is unauthorized", async () => {
  const stranger = connect(address.replace("SharedAccessKey=", "SharedAccessKey=not"));
  const sender = stranger.createSender(QUEUE);
  await assert.rejects(sender.sendMessages({ body: "a" }), { code: "UnauthorizedAccess" });
  await stranger.close();
});
