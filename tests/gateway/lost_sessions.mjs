// The JavaScript client beside a gateway that answers when it is let, and loses its sessions: argument 3 is the case.
const { Client } = await import(process.argv[2]);

class Gateway {
  static sessions = []; // the requests of each
  static answering = true;
  static errors = {}; // by kind of request, the status of an error in place of its answer
  static newest = null;
  readyState = 1;
  got = [];

  constructor() {
    Gateway.newest = this;
    setTimeout(() => this.onopen());
  }

  send(text) {
    const message = JSON.parse(text);
    if (message.kind === "acknowledge") return;
    if (message.kind === "hello") {
      const session = String(Gateway.sessions.push(this.got));
      this.tell({ kind: "welcome", session, resumed: false, window_bytes: 1e6, max_message_bytes: 1e6 });
    } else {
      this.got.push(message);
      const status = Gateway.errors[message.kind];
      if (status) this.tell({ kind: "error", request: message.request, status, message: "no" });
      else if (Gateway.answering) this.tell({ kind: "answer", request: message.request, attributes: { price: "float64" } });
    }
  }

  tell(message) {
    setTimeout(() => this.readyState === 1 && this.onmessage({ data: JSON.stringify(message) }));
  }

  lose() {
    this.readyState = 3;
    this.onclose({ code: 1006 });
  }

  close() {}
}

const until = async (holds) => {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 1));
};
const asked = (session) => Gateway.sessions[session - 1]?.map(({ kind, subscription }) => [kind, subscription]) ?? [];
const failure = (promise) => promise.then(() => "none", ({ status, message }) => `${status}: ${message}`);
const [states, notices, views] = [[], [], []];
const onState = (connected, reason) => states.push(connected ? reason : "lost");
const onNotice = (notice) => notices.push(notice);
const options = { WebSocket: Gateway, onState, onNotice };
const now = performance.now.bind(performance);
let later = 0;
performance.now = () => now() + later;

const cases = {
  // Two sessions are lost in a row, the second before it has answered anything.
  twice: async () => {
    const client = new Client("http://gateway", options);
    const a = await client.subscribe("Quote", "", {}, () => {}, { validFor: 1_000 });
    const b = await client.view("Quote", "", {}, (changes) => views.push(changes));
    const c = await client.subscribe("Quote");
    Gateway.answering = false;
    Gateway.newest.lose();
    await until(() => asked(2).length === 3);
    const cancelled = c.unsubscribe();
    const published = failure(client.publish("Quote", { price: 1 }));
    const updated = a.update({ limit: 1 });
    later = 600_000;
    Gateway.newest.lose();
    await until(() => asked(3).length === 3);
    Gateway.answering = true;
    Gateway.newest.lose();
    await Promise.all([cancelled, updated]);
    await until(() => asked(4).length === 3);
    await b.update({});
    const rest = [2, 3, 4].map((session) => Math.round(Gateway.sessions[session - 1][0].valid_for));
    return [asked(2), asked(3), asked(4), rest, await published, states, a.values, views];
  },
  // The old session has had a renewal, and its answer is lost with it, as the old period ends.
  renewal: async () => {
    const client = new Client("http://gateway", options);
    const a = await client.subscribe("Quote", "", {}, () => {}, { validFor: 60 });
    Gateway.answering = false;
    const renewed = a.renew(60);
    later = 61_000;
    Gateway.answering = true;
    Gateway.newest.lose();
    await renewed;
    later = 91_000;
    Gateway.newest.lose();
    await until(() => asked(3).length);
    return [asked(2), Gateway.sessions[1][0].valid_for, Math.round(Gateway.sessions[2][0].valid_for)];
  },
  // The new session finds no broker for a time; and what it refuses for good does not begin again.
  away: async () => {
    const wait = globalThis.setTimeout;
    globalThis.setTimeout = (callback, ms) => wait(callback, ms === 5_000 ? 1 : ms);
    const client = new Client("http://gateway", options);
    const ships = await client.view("Ship", "", {}, (changes) => views.push(...changes));
    await client.subscribe("Quote");
    const event = { kind: "changes", subscription: 1, key: "id", changes: ["enter"], events: [{ id: 1 }] };
    Gateway.newest.tell(event);
    await until(() => ships.inside.size);
    Gateway.errors = { view: "UNAVAILABLE", subscribe: "INVALID_ARGUMENT" };
    Gateway.newest.lose();
    await until(() => notices.length > 2);
    Gateway.answering = false; // and this session is lost as well
    Gateway.errors = {};
    await until(() => asked(2).length > notices.length);
    Gateway.errors = { view: "DEADLINE_EXCEEDED" };
    Gateway.newest.lose();
    await until(() => notices.at(-1).status === "DEADLINE_EXCEEDED");
    Gateway.answering = true;
    Gateway.errors = {};
    await until(() => !ships.inside.size);
    return [[...new Set(asked(3).map(String))], notices.slice(0, 2), views.map(({ kind }) => kind)];
  },
  // What the user asks for while the new session has no broker, before and after that is known.
  changed: async () => {
    const wait = globalThis.setTimeout;
    const again = [];
    globalThis.setTimeout = (callback, ms) => (ms === 5_000 ? again.push(callback) : wait(callback, ms));
    const client = new Client("http://gateway", options);
    const quotes = await client.subscribe("Quote", "price < $limit", { limit: 1 }, () => {}, { validFor: 1_000 });
    const cancelled = await client.subscribe("Quote");
    Gateway.answering = false;
    Gateway.newest.lose();
    await until(() => asked(2).length === 2);
    const [subscribing, other] = Gateway.sessions[1];
    const updates = [quotes.update({ limit: 2 })];
    const tell = ({ request }, status) => Gateway.newest.tell({ kind: "error", request, status, message: "no" });
    tell(subscribing, "UNAVAILABLE");
    tell(other, "UNAVAILABLE");
    tell(Gateway.sessions[1][2], "INVALID_ARGUMENT");
    await until(() => notices.length === 2);
    await new Promise((resolve) => wait(resolve, 20));
    updates.push(quotes.update({ limit: 3 }), quotes.renew(2_000), cancelled.unsubscribe());
    const sent = Gateway.sessions[1].length;
    Gateway.answering = true;
    for (const callback of again) callback();
    await Promise.all(updates);
    const changes = Gateway.sessions[1].slice(sent).map(({ kind, values }) => [kind, values?.limit ?? null]);
    return [sent, changes, quotes.values, cancelled.expired, notices.map(({ status }) => status)];
  },
  // A callback that throws ends nothing.
  callback: async () => {
    const told = [];
    process.on("uncaughtException", (error) => told.push(error.message));
    const client = new Client("http://gateway", options);
    const view = await client.view("Ship", "", {}, (changes) => {
      if (changes[0].kind === "leave") throw new Error("of the page");
    });
    const event = { kind: "changes", subscription: 1, key: "id", changes: ["enter"], events: [{ id: 1 }] };
    Gateway.newest.tell(event);
    await until(() => view.inside.size);
    Gateway.newest.lose();
    await until(() => told.length);
    Gateway.newest.tell(event);
    await until(() => view.inside.size);
    return [told, notices];
  },
  // What JSON does not have is refused, and stands in nobody's way.
  json: async () => {
    const client = new Client("http://gateway", options);
    const early = await failure(client.publish("Quote", { n: 5n }));
    await client.opened();
    const value = await failure(client.subscribe("Quote", "n < $n", { n: 5n }));
    Gateway.newest.lose();
    await client.publish("Quote", { n: 5 });
    return [early, value, asked(2)];
  },
  arguments: async () => {
    const client = new Client("http://gateway", options);
    return Promise.all([
      failure(client.subscribe("Quote", () => {})),
      failure(client.subscribe("Quote", "", () => {})),
      failure(client.view("Quote", "", {}, { leave: "" })),
      failure(client.view("Quote", null)),
      failure(client.subscribe({ type: "Quote" })),
    ]);
  },
  // Such as for ws: on a page by https.
  socket: async () => {
    class Refusing {
      constructor() {
        throw new Error("an insecure connection");
      }
    }
    const client = new Client("http://gateway", { WebSocket: Refusing });
    const waiting = failure(client.subscribe("Quote"));
    return [await failure(client.opened()), await waiting];
  },
  // Where tokens come from may be away when the connection is; where there never was one, that is told at once.
  token: async () => {
    let fails = false;
    const token = async () => {
      if (fails) throw new TypeError("fetch failed");
      return "t";
    };
    const client = new Client("http://gateway", { ...options, token });
    await client.opened();
    fails = true;
    Gateway.newest.lose();
    await until(() => notices.length > 1);
    fails = false;
    await client.publish("Quote", {});
    fails = true;
    const other = new Client("http://gateway", { ...options, token });
    return [notices[0], states, asked(2), await failure(other.opened())];
  },
  // What is under way when the client is closed: events, a subscription of the new session, a token.
  closed: async () => {
    const events = [];
    const client = new Client("http://gateway", options);
    await client.subscribe("Quote", "", {}, (some) => events.push(...some));
    Gateway.answering = false;
    Gateway.newest.lose();
    await until(() => asked(2).length);
    Gateway.newest.tell({ kind: "events", subscription: 1, events: [{ price: 1 }] });
    client.close();
    let refuse = null;
    let token = "t";
    const other = new Client("http://gateway", { ...options, token: () => token });
    await other.opened();
    token = { then: (_, reject) => (refuse = reject) };
    Gateway.newest.lose();
    await until(() => refuse);
    other.close();
    refuse(new Error("fetch failed"));
    await new Promise((resolve) => setTimeout(resolve, 20));
    return [events, notices];
  },
};
console.log(JSON.stringify(await cases[process.argv[3]]()));
process.exit();
