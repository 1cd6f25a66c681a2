// rhea, a client of AMQP 1.0 that knows nothing of Service Bus; SERVICE_BUS is the address (host:port).
"use strict";

const assert = require("node:assert/strict");
const { on, once } = require("node:events");
const { test } = require("node:test");
const rhea = require("rhea");

const [host, port] = process.env.SERVICE_BUS.split(":");
const bounded = { timeout: 60_000 };

function open(password) {
  const options = { host, port: Number(port), reconnect: false };
  return rhea.create_container().connect({ ...options, username: "RootManageSharedAccessKey", password });
}

async function take(events, count) {
  const taken = [];
  while (taken.length < count) taken.push((await events.next()).value[0]);
  return taken;
}

test("with the key as a password messages are sent, received and settled", bounded, async () => {
  const connection = open("SAS_KEY_VALUE");
  const sender = connection.open_sender("parcels");
  const accepted = on(sender, "accepted");
  await once(sender, "sendable");
  for (const body of ["a", "b", "c"]) sender.send({ body, application_properties: { from: "rhea" } });
  await take(accepted, 3);

  const receiver = connection.open_receiver({ source: "parcels", autoaccept: false, credit_window: 0 });
  const messages = on(receiver, "message");
  receiver.add_credit(3);
  const received = await take(messages, 3);
  for (const { message, delivery } of received) {
    assert.equal(message.application_properties.from, "rhea");
    assert.ok(message.message_id);
    delivery.accept();
  }
  assert.deepEqual(received.map(({ message }) => message.body), ["a", "b", "c"]);
  const closed = once(connection, "connection_close");
  connection.close();
  await closed;
});

test("a wrong password does not get in", bounded, async () => {
  const connection = open("not");
  await new Promise((resolve, reject) => {
    for (const name of ["connection_error", "disconnected"]) connection.on(name, resolve);
    connection.on("connection_open", () => reject(new Error("it got in")));
  });
});
