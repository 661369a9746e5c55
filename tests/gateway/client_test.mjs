// What the JavaScript client does in Node: each line on standard input is a step, each on standard output its result.
import readline from "node:readline";

const { Client } = await import(process.argv[2]);
const got = [];
const states = [];
const notices = [];
let token = process.argv[4];
let attempts = 0;
class Counted extends WebSocket {
  constructor(url) {
    super(url);
    attempts += 1;
  }
}
const client = new Client(process.argv[3], {
  token: token ? () => token : undefined,
  format: process.argv[5],
  WebSocket: Counted,
  onState: (connected, reason) => states.push([connected, reason]),
  onNotice: (notice) => notices.push(notice),
});
const subscriptions = {};
const now = performance.now.bind(performance);
let later = 0;
let begun;
performance.now = () => now() + later;
const steps = {
  opened: () => client.opened(),
  subscribe: async (name, ...rest) => {
    const collect = (events, batch) =>
      got.push(...(events instanceof Uint8Array ? [[batch.sequences, events.length % 8]] : events.map((each) => each.price)));
    subscriptions[name] = await client.subscribe(...rest, collect);
    return subscriptions[name].attributes;
  },
  paced: async (name, type, maxRate, options = { maxRate }) => {
    const collect = (events) => got.push(...events.map((each) => each.x));
    subscriptions[name] = await client.subscribe(type, "", {}, collect, options);
  },
  view: async (name, type, filter, values, options) => {
    const collect = (changes) => got.push(...changes.map(({ kind, event }) => [kind, event.id]));
    subscriptions[name] = await client.view(type, filter, values, collect, options);
    return subscriptions[name].key;
  },
  lasting: async (name, type, validFor) => {
    const collect = (events) => got.push(...events.map((each) => each.price));
    subscriptions[name] = await client.subscribe(type, "", {}, collect, { validFor });
  },
  renew: (name, validFor) => subscriptions[name].renew(validFor),
  begin: (step, ...rest) => void (begun = steps[step](...rest)),
  begun: () => begun,
  pass: (seconds) => void (later += 1000 * seconds),
  expired: (name) => subscriptions[name].expired,
  inside: (name) => [...subscriptions[name].inside.values()],
  update: (name, values, options) => subscriptions[name].update(values, options),
  updates: async (name, ...some) => {
    const all = await Promise.allSettled(some.map((values) => subscriptions[name].update(values)));
    return all.map((each) => each.status);
  },
  values: (name) => subscriptions[name].values,
  wrong: async (url, options, missing) => {
    const { WebSocket } = globalThis;
    if (missing) globalThis.WebSocket = undefined;
    try {
      new Client(url, options);
    } finally {
      globalThis.WebSocket = WebSocket;
    }
  },
  unsubscribe: (name) => subscriptions[name].unsubscribe(),
  publish: (...rest) => client.publish(...rest),
  got: async (least) => {
    while (got.length < least) await new Promise((resolve) => setTimeout(resolve, 5));
    return got.splice(0);
  },
  attempts: async (least) => {
    while (attempts < least) await new Promise((resolve) => setTimeout(resolve, 5));
    return attempts;
  },
  states: () => states,
  lost: async () => { // the reason of the last loss, once there is one
    while (states.at(-1)?.[0] !== false) await new Promise((resolve) => setTimeout(resolve, 5));
    return states.at(-1)[1];
  },
  notices: () => notices,
  token: (newest) => void (token = newest),
  close: () => client.close(),
};
for await (const line of readline.createInterface({ input: process.stdin })) {
  const [step, ...rest] = JSON.parse(line);
  try {
    console.log(JSON.stringify({ value: (await steps[step](...rest)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ status: error.status ?? String(error), message: error.message }));
  }
}
process.exit(0);
