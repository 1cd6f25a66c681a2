// @azure/cosmos, unchanged, against the account at COSMOS_ENDPOINT with the key COSMOS_KEY.
"use strict";

const assert = require("node:assert/strict");
const { randomUUID } = require("node:crypto");
const { after, before, describe, test } = require("node:test");
const { ChangeFeedStartFrom, CosmosClient, PatchOperationType } = require("@azure/cosmos");

const client = new CosmosClient({
  endpoint: process.env.COSMOS_ENDPOINT,
  key: process.env.COSMOS_KEY,
  connectionPolicy: { retryOptions: { maxRetryAttemptCount: 0 } },
});
const database = client.database("lockstep");
const journal = database.container("journal"); // one physical partition, key /session
const divided = database.container("divided"); // several physical partitions, key /tail

after(() => client.dispose());

// A session of its own for every test.
function entry(id, rest = {}, session = randomUUID()) {
  return { id, session, ...rest };
}

function own(document) {
  return Object.fromEntries(Object.entries(document).filter(([name]) => !name.startsWith("_")));
}

async function refused(work, code) {
  await assert.rejects(work, (error) => {
    assert.equal(error.code, code, error.message);
    return true;
  });
}

describe("items", () => {
  test("are created, read and deleted by id and partition key", async () => {
    const document = entry("000", { state: { legs: [1, 2.5, null], gate: "é" } });
    const created = await journal.items.create(document);
    assert.equal(created.statusCode, 201);
    const item = journal.item("000", document.session);
    const read = await item.read();
    assert.deepEqual(own(read.resource), document);
    assert.equal(read.etag, created.etag);
    assert.equal(read.requestCharge, 2); // a kilobyte, strong
    assert.equal((await item.delete()).statusCode, 204);
    assert.equal((await item.read()).statusCode, 404);
    await refused(item.delete(), 404);
  });

  test("cannot be created twice in a partition", async () => {
    const document = entry("000");
    await journal.items.create(document);
    await refused(journal.items.create(document), 409);
  });

  test("are upserted whether they are there or not", async () => {
    const document = entry("000", { n: 1 });
    assert.equal((await journal.items.upsert(document)).statusCode, 201);
    const second = await journal.items.upsert({ ...document, n: 2 });
    assert.deepEqual([second.statusCode, second.resource.n], [200, 2]);
  });

  test("are replaced only under the tag they have", async () => {
    const document = entry("000", { n: 1 });
    const { etag } = await journal.items.create(document);
    const item = journal.item("000", document.session);
    const accessCondition = { type: "IfMatch", condition: etag };
    await item.replace({ ...document, n: 2 }, { accessCondition });
    await refused(item.replace({ ...document, n: 3 }, { accessCondition }), 412);
    assert.equal((await item.read()).resource.n, 2);
  });

  test("are patched, all changes or none, on a condition", async () => {
    const document = entry("000", { n: 1, owing: true, legs: ["a", "c"] });
    await journal.items.create(document);
    const item = journal.item("000", document.session);
    const { resource } = await item.patch({
      condition: "from c where c.n = 1",
      operations: [
        { op: PatchOperationType.remove, path: "/owing" },
        { op: PatchOperationType.add, path: "/legs/1", value: "b" },
        { op: PatchOperationType.incr, path: "/n", value: 4 },
        { op: PatchOperationType.set, path: "/gate", value: { name: "B7" } },
        { op: PatchOperationType.replace, path: "/gate/name", value: "B8" },
      ],
    });
    const { id, session } = document;
    const expected = { id, session, n: 5, legs: ["a", "b", "c"], gate: { name: "B8" } };
    assert.deepEqual(own(resource), expected);
    const operations = [{ op: "set", path: "/n", value: 0 }];
    await refused(item.patch({ condition: "from c where c.n = 1", operations }), 412);
    await refused(item.patch([...operations, { op: "remove", path: "/owing" }]), 400);
    assert.deepEqual(own((await item.read()).resource), expected);
  });
});

describe("a transactional batch", () => {
  test("applies all of its operations", async () => {
    const old = entry("000", { n: 1, owing: true });
    await journal.items.create(old);
    const { result, code } = await journal.items.batch(
      [
        { operationType: "Create", resourceBody: { id: "001", session: old.session } },
        { operationType: "Upsert", resourceBody: { id: "002", session: old.session } },
        { operationType: "Read", id: "000" },
        { operationType: "Replace", id: "001", resourceBody: { ...old, id: "001" } },
        {
          operationType: "Patch",
          id: "000",
          resourceBody: { operations: [{ op: "remove", path: "/owing" }] },
        },
        { operationType: "Delete", id: "002" },
      ],
      old.session,
    );
    assert.equal(code, 200);
    assert.deepEqual(
      result.map((one) => one.statusCode),
      [201, 201, 200, 200, 200, 204],
    );
    const left = await ids(old.session);
    assert.deepEqual(left, ["000", "001"]);
    assert.equal((await journal.item("000", old.session).read()).resource.owing, undefined);
  });

  test("applies none when one fails, and says which", async () => {
    const old = entry("000");
    await journal.items.create(old);
    const { result, code } = await journal.items.batch(
      [
        { operationType: "Create", resourceBody: { id: "001", session: old.session } },
        { operationType: "Create", resourceBody: old },
        { operationType: "Delete", id: "000" },
      ],
      old.session,
    );
    assert.equal(code, 207);
    assert.deepEqual(
      result.map((one) => one.statusCode),
      [424, 409, 424],
    );
    assert.deepEqual(await ids(old.session), ["000"]);
  });

  async function ids(session) {
    const query = "SELECT VALUE c.id FROM c ORDER BY c.id";
    const options = { partitionKey: session };
    return (await journal.items.query(query, options).fetchAll()).resources;
  }
});

describe("queries", () => {
  const COUNT = 40;

  before(async () => {
    for (let n = 0; n < COUNT; n++) {
      const legs = [n % 2 ? "odd" : "even", `leg${n % 5}`];
      const id = `${n}`.padStart(2, "0");
      await divided.items.create({ id, tail: `N${n % 10}`, n, gate: `it's ${n % 3}`, legs });
    }
  });

  async function all(query, options) {
    return (await divided.items.query(query, options).fetchAll()).resources;
  }

  test("tell which indexes they used", async () => {
    const options = { partitionKey: "N3", populateIndexMetrics: true };
    const page = await divided.items.query("SELECT * FROM c WHERE c.n > 1", options).fetchNext();
    const { Utilized: used } = JSON.parse(page.indexMetrics);
    assert.deepEqual(used.SingleIndexes, [{ IndexSpec: "/n/?" }, { IndexSpec: "/tail/?" }]);
  });

  test("see one partition when it is named", async () => {
    const query = {
      query: "SELECT VALUE c.n FROM c WHERE c.n >= @least ORDER BY c.n DESC",
      parameters: [{ name: "@least", value: 10 }],
    };
    assert.deepEqual(await all(query, { partitionKey: "N3" }), [33, 23, 13]);
    assert.deepEqual(await all("SELECT VALUE COUNT(1) FROM c", { partitionKey: "N3" }), [4]);
  });

  test("see all partitions when none is named", async () => {
    const found = await all("SELECT VALUE c.n FROM c WHERE ARRAY_CONTAINS(c.legs, 'leg3')");
    assert.deepEqual(
      found.sort((one, other) => one - other),
      [3, 8, 13, 18, 23, 28, 33, 38],
    );
  });

  test("are sorted, limited and without repeats over all partitions", async () => {
    const numbers = Array.from({ length: COUNT }, (_, n) => n);
    assert.deepEqual(await all("SELECT VALUE c.n FROM c ORDER BY c.n"), numbers);
    const top = "SELECT TOP 3 c.n FROM c WHERE c.n < 20 ORDER BY c.n DESC";
    assert.deepEqual(await all(top), [{ n: 19 }, { n: 18 }, { n: 17 }]);
    const window = "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 5 LIMIT 4";
    assert.deepEqual(await all(window), [5, 6, 7, 8]);
    const distinct = await all("SELECT DISTINCT VALUE c.legs[0] FROM c");
    assert.deepEqual(distinct.sort(), ["even", "odd"]);
  });

  test("add up over all partitions", async () => {
    for (const [aggregate, expected] of [
      ["COUNT(1)", 40],
      ["SUM(c.n)", 780],
      ["AVG(c.n)", 19.5],
      ["MIN(c.n)", 0],
      ["MAX(c.tail)", "N9"],
    ]) {
      assert.deepEqual(await all(`SELECT VALUE ${aggregate} FROM c`), [expected], aggregate);
    }
    assert.deepEqual(await all("SELECT VALUE MAX(c.absent) FROM c"), []);
  });

  test("come in pages that a token resumes", async () => {
    const text = "SELECT VALUE c.n FROM c ORDER BY c.id";
    const options = { partitionKey: "N3", maxItemCount: 3 };
    const first = await divided.items.query(text, options).fetchNext();
    assert.deepEqual(first.resources, [3, 13, 23]);
    const { continuationToken } = first;
    const rest = divided.items.query(text, { ...options, continuationToken });
    assert.deepEqual((await rest.fetchNext()).resources, [33]);
    assert.equal(rest.hasMoreResults(), false);
  });

  test("in pages over all partitions miss and repeat nothing", async () => {
    const found = [];
    const query = divided.items.query("SELECT VALUE c.n FROM c ORDER BY c.n", { maxItemCount: 7 });
    while (query.hasMoreResults()) {
      const { resources } = await query.fetchNext();
      assert.ok(resources.length <= 7);
      found.push(...resources);
    }
    assert.deepEqual(
      found,
      Array.from({ length: COUNT }, (_, n) => n),
    );
  });

  test("over all partitions are resumed by a token when the client is told to make one", async () => {
    const numbers = Array.from({ length: COUNT }, (_, n) => n);
    assert.deepEqual(await resumed("SELECT VALUE c.n FROM c ORDER BY c.n"), numbers);
    const tied = await resumed("SELECT VALUE c.n FROM c ORDER BY c.gate DESC");
    assert.deepEqual(
      tied.sort((one, other) => one - other),
      numbers,
    );
  });

  async function resumed(text) {
    const found = [];
    let continuationToken;
    for (let pages = 0; pages < COUNT; pages++) {
      const options = { maxItemCount: 7, enableQueryControl: true, continuationToken };
      const page = await divided.items.query(text, options).fetchNext();
      found.push(...page.resources);
      ({ continuationToken } = page);
      if (continuationToken === undefined) return found;
    }
    throw new Error("the query never ended");
  }

  test("that are not offered are refused by name", async () => {
    for (const text of ["SELECT * FROM c JOIN x IN c.legs", "SELECT c.tail FROM c GROUP BY c.tail"]) {
      await refused(all(text), 400);
      await assert.rejects(all(text), /JOIN|GROUP/);
    }
  });
});

describe("the change feed", () => {
  test("shows each item of a partition at its newest version, oldest change first", async () => {
    const session = randomUUID();
    for (const id of ["a", "b", "c"]) await journal.items.create(entry(id, { n: 1 }, session));
    await journal.items.upsert(entry("a", { n: 2 }, session));
    const seen = await pulled(journal, ChangeFeedStartFrom.Beginning(session));
    assert.deepEqual(
      seen.map(({ id, n }) => [id, n]),
      [
        ["b", 1],
        ["c", 1],
        ["a", 2],
      ],
    );
  });

  test("of a container goes on from where it was left", async () => {
    const tails = Array.from({ length: 8 }, () => randomUUID());
    const feed = divided.items.getChangeFeedIterator({
      changeFeedStartFrom: ChangeFeedStartFrom.Now(),
    });
    const { continuationToken } = await drained(feed);
    for (const tail of tails) await divided.items.create({ id: tail, tail });
    const seen = await pulled(divided, ChangeFeedStartFrom.Continuation(continuationToken));
    assert.deepEqual(seen.map(({ id }) => id).sort(), [...tails].sort());
  });

  async function pulled(container, changeFeedStartFrom) {
    return (await drained(container.items.getChangeFeedIterator({ changeFeedStartFrom }))).found;
  }

  async function drained(feed) {
    const found = [];
    while (feed.hasMoreResults) {
      const page = await feed.readNext();
      if (page.statusCode === 304) return { found, continuationToken: page.continuationToken };
      found.push(...page.result);
    }
    throw new Error("the feed ended, which it never should");
  }
});
