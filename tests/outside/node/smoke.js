// kafkajs against a broker: one line "ok <step>" for each step that held, or an error and exit 1.
"use strict";

const assert = require("node:assert");
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");
const SnappyCodec = require("kafkajs-snappy");

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;

const plan = JSON.parse(process.argv[2]);
const PER_CODEC = 30;
const READ_TIMEOUT_MS = 60_000;
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
};

const kafka = new Kafka({
  clientId: "outside",
  brokers: plan.bootstrap.split(","),
  logLevel: logLevel.WARN,
});
const admin = kafka.admin();
const orders = `${plan.prefix}-orders`;
const payments = `${plan.prefix}-payments`;

function ok(step) {
  console.log(`ok ${step}`);
}

function range(count) {
  return [...Array(count).keys()];
}

function values(messages) {
  return messages.map(({ message }) => message.value.toString()).sort();
}

async function createTopics() {
  const topic = (name, numPartitions) => ({
    topic: name,
    numPartitions,
    replicationFactor: plan.replication,
    configEntries: [{ name: "retention.ms", value: "86400000" }],
  });
  const topics = [topic(orders, 3), topic(payments, 1)];
  assert.strictEqual(await admin.createTopics({ topics, waitForLeaders: true }), true);
  const metadata = await admin.fetchTopicMetadata({ topics: [orders] });
  assert.strictEqual(metadata.topics[0].partitions.length, 3);
  for (const partition of metadata.topics[0].partitions) {
    assert.strictEqual(partition.replicas.length, plan.replication);
  }
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: orders }];
  const described = await admin.describeConfigs({ resources, includeSynonyms: false });
  const retention = described.resources[0].configEntries.find((e) => e.configName === "retention.ms");
  assert.strictEqual(retention.configValue, "86400000");
}

async function produce() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (const [codec, compression] of Object.entries(CODECS)) {
    const messages = range(PER_CODEC).map((number) => ({
      key: `key-${number}`,
      value: `${codec}-${number}`,
      headers: { codec },
    }));
    await producer.send({ topic: orders, compression, acks: -1, messages });
  }
  await producer.disconnect();
}

// Reads in a group from the committed offsets, or from the start, until `isEnd` says so; commits.
async function read(topic, groupId, isEnd) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 30_000, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const messages = [];
  await new Promise((resolve, reject) => {
    const late = () => reject(new Error(`${messages.length} of ${topic} in ${READ_TIMEOUT_MS} ms`));
    const timer = setTimeout(late, READ_TIMEOUT_MS);
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    const eachMessage = async ({ partition, message }) => {
      messages.push({ partition, message });
      if (isEnd(messages)) {
        clearTimeout(timer);
        resolve();
      }
    };
    consumer.run({ autoCommit: false, eachMessage }).catch(reject);
  });
  await consumer.commitOffsets(nextOffsets(topic, messages));
  await consumer.disconnect();
  return messages;
}

function nextOffsets(topic, messages) {
  const next = new Map();
  for (const { partition, message } of messages) {
    next.set(partition, (BigInt(message.offset) + 1n).toString());
  }
  return [...next].map(([partition, offset]) => ({ topic, partition, offset }));
}

async function readInGroup() {
  const sent = Object.keys(CODECS).flatMap((codec) => range(PER_CODEC).map((n) => `${codec}-${n}`));
  const messages = await read(orders, `${plan.prefix}-group`, (m) => m.length >= sent.length);
  assert.deepStrictEqual(values(messages), sent.sort());
  for (const { message } of messages) {
    const [codec, number] = message.value.toString().split("-");
    assert.strictEqual(message.key.toString(), `key-${number}`);
    assert.strictEqual(message.headers.codec.toString(), codec);
  }
}

async function resume() {
  const producer = kafka.producer();
  await producer.connect();
  const messages = range(PER_CODEC).map((n) => ({ key: `key-${n}`, value: `later-${n}` }));
  await producer.send({ topic: orders, messages });
  await producer.disconnect();
  const later = await read(orders, `${plan.prefix}-group`, (m) => m.length >= PER_CODEC);
  assert.deepStrictEqual(values(later), range(PER_CODEC).map((n) => `later-${n}`).sort());
}

async function transactions() {
  const producer = kafka.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    transactionalId: `${plan.prefix}-payments`,
  });
  await producer.connect();
  for (const [word, ends] of [["first", "commit"], ["dropped", "abort"], ["second", "commit"]]) {
    const transaction = await producer.transaction();
    await transaction.send({
      topic: payments,
      messages: range(10).map((n) => ({ value: `${word}-${n}` })),
    });
    if (ends === "commit") {
      const topics = [{ topic: orders, partitions: [{ partition: 0, offset: "5" }] }];
      await transaction.sendOffsets({ consumerGroupId: `${plan.prefix}-sent`, topics });
    }
    await transaction[ends]();
  }
  await producer.disconnect();
  const seen = await read(payments, `${plan.prefix}-committed`, (m) => m.length >= 20);
  const kept = ["first", "second"].flatMap((word) => range(10).map((n) => `${word}-${n}`));
  assert.deepStrictEqual(values(seen), kept.sort());
  const sent = await admin.fetchOffsets({ groupId: `${plan.prefix}-sent`, topics: [orders] });
  assert.strictEqual(sent[0].partitions.find(({ partition }) => partition === 0).offset, "5");
}

async function describeAndDelete() {
  const groupId = `${plan.prefix}-group`;
  const { groups } = await admin.describeGroups([groupId]);
  assert.strictEqual(groups[0].state, "Empty");
  const ends = await admin.fetchTopicOffsets(orders);
  const committed = await admin.fetchOffsets({ groupId, topics: [orders] });
  const offsets = (rows) => rows.map((row) => `${row.partition}:${row.offset}`).sort();
  assert.deepStrictEqual(offsets(committed[0].partitions), offsets(ends));
  await admin.deleteGroups([groupId]);
  await admin.deleteTopics({ topics: [payments] });
  assert.ok(!(await admin.listTopics()).includes(payments));
}

async function readCompacted() {
  const { topic, keys, last_round, written } = plan.compacted;
  const [{ high }] = await admin.fetchTopicOffsets(topic);
  const lastOffset = (BigInt(high) - 1n).toString();
  const messages = await read(
    topic,
    `${plan.prefix}-table`,
    (m) => m[m.length - 1].message.offset === lastOffset,
  );
  assert.ok(messages.length < written, `nothing of ${written} records was cleaned`);
  const latest = new Map(
    messages.map(({ message }) => [message.key.toString(), message.value.toString()]),
  );
  assert.deepStrictEqual(
    [...latest].sort(),
    range(keys).map((n) => [`key-${n}`, `round-${last_round} of ${n}`]).sort(),
  );
}

const STEPS = {
  topics: createTopics,
  produce,
  group: readInGroup,
  resume,
  transactions,
  admin: describeAndDelete,
  compacted: readCompacted,
};

async function main() {
  await admin.connect();
  for (const step of plan.steps) {
    await STEPS[step]();
    ok(step);
  }
  await admin.disconnect();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
