// The Node party of the interoperability tests. It reads one JSON object a line
// from stdin, {id, op, ...}, and answers each with {id, ...}, in any order:
//
//   connect {server, addr}              server names the connection from then on
//   acquire {server, key, ttl, delay}   one attempt, or with a delay as many as it takes;
//                                       {refused: true} goes ahead at the first refusal
//   extend, release, isLocked {hold}    of a lock by acquire
//   adopt {server, key, token}          a hold by its token alone
//   hammer {server, key, ttl, ...}      see hammer
//
// It ends with its stdin.
"use strict";
const readline = require("readline");
const Redis = require("ioredis");
const { Locker, IoRedisAdapter, errors } = require("@kontsedal/locco");

const servers = new Map();
const holds = new Map();

function connect(r) {
  const [, host, port] = /^(.*):(\d+)$/.exec(r.addr);
  const client = new Redis({ host, port: Number(port) });
  client.on("error", (error) => process.stderr.write(`ioredis: ${error.message}\n`));
  return { client, adapter: new IoRedisAdapter({ client }), options: r };
}

function server(r) {
  const s = servers.get(r.server);
  if (!s) throw new Error(`no connection ${r.server}`);
  return s;
}

function keep(hold) {
  const id = holds.size + 1;
  holds.set(id, hold);
  return id;
}

// applied turns the library's refusals into an answer. All else is an error.
async function applied(call, refusal) {
  try {
    await call();
    return { ok: true };
  } catch (error) {
    if (error instanceof refusal) return { ok: false };
    throw error;
  }
}

// lockOf returns a lock that is still to be acquired.
function lockOf(adapter, r, refused) {
  let retrySettings = { retryTimes: 1, retryDelay: 0 };
  if (r.delay) {
    retrySettings = {
      retryDelayFn: () => {
        refused();
        return r.delay;
      },
    };
  }
  return new Locker({ adapter, retrySettings }).lock(r.key, r.ttl);
}

async function acquire(r) {
  let refusals = 0;
  const lock = lockOf(server(r).adapter, r, () => {
    if (refusals++ === 0) answer({ id: r.id, refused: true });
  });
  const { ok } = await applied(() => lock.acquire(), errors.RetryError);
  if (!ok) return { ok };
  const hold = keep({
    extend: (ttl) => lock.extend(ttl),
    release: () => lock.release({ throwOnFail: true }),
    isLocked: () => lock.isLocked(),
  });
  return { ok, hold, token: lock.uniqueValue };
}

function adopt(r) {
  const { adapter } = server(r);
  const its = { key: r.key, uniqueValue: r.token };
  const hold = keep({
    extend: (ttl) => adapter.extendLock({ ...its, ttl }),
    release: () => adapter.releaseLock(its),
    isLocked: () => adapter.isValidLock(its),
  });
  return { ok: true, hold, token: r.token };
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// hammer works for r.ms milliseconds, and until each of r.workers has had r.key
// r.rounds times: under the lock it counts r.counter up by a read and a write, and
// adds its name to the list r.log. It answers with the rounds of each.
async function hammer(r) {
  const end = Date.now() + r.ms;
  const work = async () => {
    const { client, adapter } = connect(server(r).options);
    try {
      let rounds = 0;
      while (Date.now() < end || rounds < r.rounds) {
        const lock = lockOf(adapter, r, () => {});
        await lock.acquire();
        const value = Number((await client.get(r.counter)) ?? 0);
        await client.rpush(r.log, r.name);
        await pause(1);
        await client.set(r.counter, value + 1);
        await lock.release({ throwOnFail: true });
        rounds++;
        await pause(Math.random() * 8);
      }
      return rounds;
    } finally {
      client.disconnect();
    }
  };
  return { ok: true, rounds: await Promise.all(Array.from({ length: r.workers }, work)) };
}

const operations = {
  connect: (r) => {
    servers.set(r.server, connect(r));
    return { ok: true };
  },
  acquire,
  adopt,
  hammer,
  extend: (r) => applied(() => holds.get(r.hold).extend(r.ttl), errors.LockExtendError),
  release: (r) => applied(() => holds.get(r.hold).release(), errors.LockReleaseError),
  isLocked: async (r) => ({ ok: await holds.get(r.hold).isLocked() }),
};

function answer(a) {
  process.stdout.write(`${JSON.stringify(a)}\n`);
}

const lines = readline.createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const r = JSON.parse(line);
  try {
    answer({ id: r.id, ...(await operations[r.op](r)) });
  } catch (error) {
    answer({ id: r.id, error: `${error.name}: ${error.message}` });
  }
});
lines.on("close", () => process.exit(0));
