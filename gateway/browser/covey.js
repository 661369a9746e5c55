// The client of Covey's gateway, for browsers and Node: one module, no dependencies.
// Typed by covey.d.ts; the messages are those of /asyncapi.json.

const WELCOME_MS = 20_000; // Node 20 tells nothing of a connection that the other end closes at once
const SOON_MS = 1_000; // received messages are acknowledged at least this often: ten times as often takes a gateway as much CPU as ten events a second
const FINAL = 1008; // after this close code another attempt does not help
const PASSING = ["UNAVAILABLE", "DEADLINE_EXCEEDED"]; // of a broker that may be back
const SHARE = 0.25; // of the gateway's window; from so many bytes on they are acknowledged at once
const SHORTEST_S = 0.001; // of a validity period
const [SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS] = [100, 5_000]; // between attempts to connect

export class CoveyError extends Error {
  constructor(status, message) {
    super(message);
    this.name = "CoveyError";
    this.status = status;
  }
}

export class Subscription {
  #client;
  #onEvents;
  #held; // the values that the gateway has accepted
  #updates = []; // behind the oldest that is unanswered, in order
  #validFor; // seconds, if it has a validity period
  #endsMs; // of that, counted from an answer: what a request waits for a connection is no part of it
  #renewals = []; // that are unanswered, in seconds

  constructor(client, number, type, filter, values, onEvents, { maxRate, validFor } = {}) {
    this.#client = client;
    this.#onEvents = onEvents;
    this.maxRate = maxRate;
    this.#validFor = period(validFor);
    this.expired = false;
    this.number = number;
    this.type = type;
    this.filter = filter;
    this.#held = { ...values };
    this.#merge();
    this.attributes = {};
  }

  // Resolves when every broker that it concerns has applied the values: events published after that are matched by them.
  // A refused update leaves `values` as they would be without it.
  async update(values, options = {}) {
    const { gapless = false } = checked("update", options, ["gapless"]);
    const update = { values, accepted: false };
    this.#updates.push(update);
    this.#merge();
    try {
      await this.#client._request({ kind: "update", subscription: this.number, values, gapless });
      update.accepted = true;
    } catch (error) {
      this.#updates.splice(this.#updates.indexOf(update), 1);
      throw error;
    } finally {
      while (this.#updates[0]?.accepted) this.#held = { ...this.#held, ...this.#updates.shift().values };
      this.#merge();
    }
  }

  #merge() {
    this.values = Object.assign({}, this.#held, ...this.#updates.map((update) => update.values));
  }

  // Have it end in so many seconds, counted anew. Resolves when the broker has applied it.
  async renew(validFor) {
    if (validFor === undefined) throw invalid("renew: validFor is missing: expected seconds");
    const request = { kind: "renew", subscription: this.number, valid_for: period(validFor) };
    const inTime = this.#endsMs === undefined || performance.now() < this.#endsMs;
    if (inTime) this.#renewals.push(validFor);
    try {
      await this.#client._request(request);
      this.#begins(validFor);
    } finally {
      if (inTime) this.#renewals.splice(this.#renewals.indexOf(validFor), 1);
    }
  }

  async unsubscribe() {
    await this.#client._cancel(this);
  }

  // With accepted values alone: updates that are unanswered are asked for again behind it.
  _asRequest() {
    const { number, type, filter, maxRate } = this;
    const options = { max_rate: maxRate, valid_for: this.#validFor };
    return { kind: "subscribe", subscription: number, type, filter, values: this.#held, ...options };
  }

  _deliver(batch) {
    this.#onEvents(batch.events ?? batch.arrow, batch);
  }

  _applied({ attributes }) {
    this.attributes = attributes;
    this.#begins(this.#validFor);
  }

  #begins(validFor) {
    this.#validFor = validFor;
    this.#endsMs = validFor === undefined ? undefined : performance.now() + 1000 * validFor;
  }

  // In a new session it has the rest of its validity period, and ends at once where that is over; one whose renewal was
  // asked for in time, and which the old session may have had, lives until the new one has it.
  _beginAnew() {
    if (this.#endsMs === undefined) return;
    this.#validFor = Math.max(SHORTEST_S, (this.#endsMs - performance.now()) / 1000, ...this.#renewals);
  }
}

// What is inside of the bounds, by key (not with format "arrow").
export class View extends Subscription {
  #onChanges;
  #leave;
  #unconfirmed = null; // in a new session: the keys that it has not sent

  constructor(client, number, type, filter, values, onChanges, { leave } = {}) {
    super(client, number, type, filter, values);
    this.#onChanges = onChanges;
    this.#leave = leave;
    this.inside = new Map();
    this.key = null;
  }

  _asRequest() {
    return { ...super._asRequest(), kind: "view", leave: this.#leave };
  }

  _deliver(batch) {
    if (!batch.events) return this.#onChanges(batch.arrow, batch);
    this.key = batch.key;
    this.#apply(batch.events.map((event, at) => ({ kind: batch.changes[at], event })));
  }

  // A new session sends what is inside again: that changes what is here, and what it does not send leaves.
  #apply(changes) {
    const told = [];
    for (const { kind, event } of changes) {
      const key = event[this.key];
      const known = this.inside.has(key);
      this.#unconfirmed?.delete(key);
      if (kind === "leave" && !known) continue;
      if (kind === "leave") this.inside.delete(key);
      else this.inside.set(key, event);
      told.push({ kind: kind === "enter" && known ? "change" : kind, event });
    }
    if (told.length) this.#onChanges(told);
  }

  _applied(answer) {
    super._applied(answer);
    const gone = [...(this.#unconfirmed ?? [])];
    this.#unconfirmed = null;
    this.#apply(gone.map((key) => ({ kind: "leave", event: this.inside.get(key) })));
  }

  _beginAnew() {
    this.#unconfirmed = new Set(this.inside.keys());
  }
}

export class Client {
  #url;
  #options;
  #WebSocket;
  #socket = null;
  #session = null;
  #received = 0;
  #unacknowledgedSize = 0;
  #window = Infinity;
  #mostBytes = Infinity;
  #timer = null;
  #retry = null;
  #requests = new Map();
  #nextRequest = 1;
  #subscriptions = new Map();
  #nextSubscription = 1;
  #away = new Set(); // the numbers of those that are tried again: what changes them waits for that
  #pauseMs = 0;
  #error = null;
  #refusal = null;
  #opened;
  #open;
  #fail;

  // `url` is that of the gateway, such as "http://127.0.0.1:8080" or, mounted, "/covey".
  constructor(url, options = {}) {
    this.#url = socketUrl(url);
    this.#options = checked("Client", options, ["token", "overflow", "format", "onState", "onNotice", "WebSocket"]);
    this.#WebSocket = options.WebSocket ?? globalThis.WebSocket;
    if (typeof this.#WebSocket !== "function") {
      throw invalid(`WebSocket is ${this.#WebSocket}: expected the option WebSocket, such as the class of the package ws, or Node 22, or Node 20 with --experimental-websocket`);
    }
    this.connected = false;
    this.#opened = new Promise((resolve, reject) => ([this.#open, this.#fail] = [resolve, reject]));
    this.#opened.catch(() => {});
    this.#connect();
  }

  // Resolves once connected, or rejects where the gateway refuses this client.
  opened() {
    return this.#opened;
  }

  // With `maxRate` a key has at most so many events per second, the newest; the event type needs a key. With `validFor` it
  // ends after so many seconds unless it is renewed: `expired` is true then, and the notice "ended" comes.
  async subscribe(type, filter = "", values = {}, onEvents = () => {}, options = {}) {
    inPlace("subscribe", type, filter, values, "onEvents", onEvents);
    checked("subscribe", options, ["maxRate", "validFor"]);
    const number = this.#nextSubscription++;
    return this.#begin(new Subscription(this, number, type, filter, values, onEvents, options));
  }

  // What is inside, and how it changes: `onChanges` gets arrays of {kind: "enter" | "change" | "leave", event}, first an
  // enter for each key inside. The event type needs a key. With `leave`, a wider filter, keys leave by that.
  async view(type, filter = "", values = {}, onChanges = () => {}, options = {}) {
    inPlace("view", type, filter, values, "onChanges", onChanges);
    checked("view", options, ["leave"]);
    return this.#begin(new View(this, this.#nextSubscription++, type, filter, values, onChanges, options));
  }

  async #begin(subscription) {
    const { number } = subscription;
    this.#subscriptions.set(number, subscription);
    try {
      subscription._applied(await this._request(subscription._asRequest()));
    } catch (error) {
      this.#subscriptions.delete(number);
      throw error;
    }
    return subscription;
  }

  // Resolves when the broker has accepted the events, which are one object or an array.
  async publish(type, events) {
    await this._request({ kind: "publish", type, events: Array.isArray(events) ? events : [events] });
  }

  // Ends the session at the gateway.
  close() {
    this.#end(new CoveyError("CANCELLED", "the client is closed"));
    this.#socket?.close(1000);
  }

  _request(message) {
    if (this.#error) return Promise.reject(this.#error);
    const request = this.#nextRequest++;
    let text;
    try {
      text = JSON.stringify({ ...message, request });
    } catch (error) { // such as for a BigInt
      return Promise.reject(invalid(`${message.kind}: ${error.message}: expected what JSON has`));
    }
    return new Promise((resolve, reject) => {
      const waiting = { message, text, sent: false, resolve, reject };
      this.#requests.set(request, waiting);
      if (this.connected) this.#sendRequest(request, waiting);
    });
  }

  async _cancel(subscription) {
    if (!this.#subscriptions.delete(subscription.number)) return; // it was cancelled before
    if (this.#away.has(subscription.number)) return; // the gateway does not have it
    try {
      await this._request({ kind: "unsubscribe", subscription: subscription.number });
    } catch (error) {
      if (error.status !== "INVALID_ARGUMENT") throw error;
      subscription.expired = true; // the end of its period was on its way
    }
  }

  async #connect() {
    let token;
    try {
      token = await this.#token();
    } catch (error) {
      return this.#withoutToken(new CoveyError("UNAUTHENTICATED", `the token: ${error?.message ?? error}`));
    }
    if (this.#error) return;
    let socket;
    try {
      socket = this.#socket = new this.#WebSocket(this.#url);
    } catch (error) { // such as for ws: on a page by https
      return this.#end(new CoveyError("FAILED_PRECONDITION", `${this.#url}: ${error.message}`));
    }
    this.#timer = setTimeout(() => {
      if (socket !== this.#socket) return;
      this.#closed({ reason: `no welcome within ${WELCOME_MS / 1_000} s` });
      socket.close();
    }, WELCOME_MS);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      const { overflow, format } = this.#options;
      const hello = { kind: "hello", token, overflow, format };
      if (this.#session) Object.assign(hello, { session: this.#session, received: this.#received });
      this.#send(hello);
    };
    socket.onmessage = (event) => socket === this.#socket && this.#receive(event.data);
    socket.onclose = (event) => socket === this.#socket && this.#closed(event);
    // Node 20 tells of an attempt that failed by an error alone; elsewhere `close` follows it, and has the reason.
    socket.onerror = () => setTimeout(() => socket === this.#socket && this.#closed({ code: 1006 }), SHORTEST_PAUSE_MS);
  }

  // Where it comes from may be away as the gateway is: once there was a session, it is asked again.
  #withoutToken(error) {
    if (!this.#session || this.#error) return this.#end(error);
    this.#options.onNotice?.({ kind: "error", status: error.status, message: error.message });
    this.#closed({ reason: error.message });
  }

  async #token() {
    const { token } = this.#options;
    return typeof token === "function" ? await token() : token;
  }

  #send(message) {
    this.#sendText(JSON.stringify(message));
  }

  #sendText(text) {
    if (this.#socket?.readyState === 1) this.#socket.send(text);
  }

  #sendRequest(request, waiting) {
    if (this.#away.has(waiting.message.subscription)) return;
    const size = new TextEncoder().encode(waiting.text).length;
    if (size > this.#mostBytes) { // it would end the connection
      this.#requests.delete(request);
      const reason = `a message of ${size} bytes: expected at most ${this.#mostBytes}`;
      return waiting.reject(new CoveyError("RESOURCE_EXHAUSTED", reason));
    }
    waiting.sent = true;
    this.#sendText(waiting.text);
  }

  #receive(data) {
    if (this.#error) return;
    const message = typeof data === "string" ? JSON.parse(data) : binaryMessage(data);
    if (message.kind === "welcome") return this.#welcome(message);
    if (!this.connected) return void (this.#refusal = message);
    this.#received += 1;
    this.#unacknowledgedSize += data.length ?? data.byteLength;
    try {
      this.#handle(message);
    } finally {
      if (this.#unacknowledgedSize > this.#window * SHARE) this.#acknowledge();
      else this.#timer ??= setTimeout(() => this.#acknowledge(), SOON_MS);
    }
  }

  #handle(message) {
    switch (message.kind) {
      case "events":
      case "changes":
        return this.#subscriptions.get(message.subscription)?._deliver(message);
      case "answer":
      case "error": {
        const waiting = this.#requests.get(message.request);
        if (this.#away.has(waiting?.message.subscription)) return; // it was sent behind the subscription
        this.#requests.delete(message.request);
        if (message.kind === "answer") return waiting?.resolve(message);
        if (waiting) return waiting.reject(new CoveyError(message.status, message.message));
        if (message.subscription) this.#subscriptions.delete(message.subscription); // a view, which has ended
        else this.#refusal = message; // of the session, which ends
        break;
      }
      case "ended": {
        const subscription = this.#subscriptions.get(message.subscription);
        this.#subscriptions.delete(message.subscription);
        if (subscription) subscription.expired = true;
        break;
      }
      case "expiry":
        this.#renew();
    }
    this.#options.onNotice?.(message);
  }

  async #renew() {
    if (this.#error || typeof this.#options.token !== "function") return;
    try {
      await this._request({ kind: "authenticate", token: await this.#token() });
    } catch (error) {
      // No broker has judged one. Else the session ends with its token, and the gateway says so.
      if (!(error instanceof CoveyError) || error.status === "UNAVAILABLE") setTimeout(() => this.#renew(), LONGEST_PAUSE_MS);
    }
  }

  #acknowledge() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#unacknowledgedSize = 0;
    if (this.connected) this.#send({ kind: "acknowledge", received: this.#received });
  }

  #welcome(message) {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.connected = true;
    this.#session = message.session;
    this.#window = message.window_bytes;
    this.#mostBytes = message.max_message_bytes;
    this.#pauseMs = 0;
    this.#refusal = null;
    if (message.resumed) {
      for (const [request, waiting] of this.#requests) {
        if (request > message.request) this.#sendRequest(request, waiting); // else its answer will come
      }
    } else {
      this.#received = 0;
      this.#beginAnew();
    }
    this.#open();
    this.#options.onState?.(true, message.resumed ? "resumed" : "afresh");
  }

  // A new session has no subscriptions, and nobody knows what became of requests of the old one.
  #beginAnew() {
    const pending = [...this.#requests.values()];
    this.#requests.clear();
    this.#away.clear();
    const subscribing = new Set(pending.filter(isSubscribe).map((each) => each.message.subscription));
    for (const [number, subscription] of this.#subscriptions) {
      if (subscribing.has(number)) subscription._beginAnew();
      else this.#subscribeAgain(number, subscription);
    }
    for (const each of pending) {
      const { message, resolve, reject } = each;
      const subscription = this.#subscriptions.get(message.subscription);
      if (message.kind === "publish" && each.sent) {
        reject(new CoveyError("ABORTED", "the session was lost: the broker may have accepted the events or not"));
      } else if (message.kind === "unsubscribe" || message.kind === "authenticate" || (isSubscribe(each) && !subscription)) {
        resolve({}); // what was cancelled meanwhile does not begin again
      } else {
        // That of an earlier new session has the rest of its validity period now.
        this._request(isSubscribe(each) ? subscription._asRequest() : message).then(resolve, reject);
      }
    }
  }

  // Where the broker is away this is tried again, as a connection is; updates and renewals wait for that.
  #subscribeAgain(number, subscription) {
    subscription._beginAnew();
    // Two functions, for what a callback of the page throws in the first is no error of the subscription.
    this._request(subscription._asRequest()).then(
      (answer) => this.#subscriptions.has(number) && subscription._applied(answer),
      ({ status, message }) => {
        if (this.#error) return;
        if (!PASSING.includes(status)) this.#subscriptions.delete(number);
        if (this.#subscriptions.has(number)) {
          this.#away.add(number);
          const session = this.#session;
          setTimeout(() => session === this.#session && this.#tryAgain(number), LONGEST_PAUSE_MS);
        }
        this.#options.onNotice?.({ kind: "error", subscription: number, status, message });
      },
    );
  }

  #tryAgain(number) {
    if (this.#error) return;
    this.#away.delete(number);
    const waiting = [...this.#requests].filter(([, { message }]) => message.subscription === number);
    const subscription = this.#subscriptions.get(number);
    if (subscription) this.#subscribeAgain(number, subscription);
    for (const [request, { message, resolve, reject }] of waiting) {
      this.#requests.delete(request);
      this._request(message).then(resolve, reject);
    }
  }

  #closed(event) {
    this.#socket = null; // what else it tells does not count
    const wasConnected = this.connected;
    this.connected = false;
    clearTimeout(this.#timer);
    this.#timer = null;
    const unreached = !wasConnected && !this.#session;
    const failure = unreached ? `no gateway answers at ${this.#url}` : "the connection broke";
    const reason = this.#error?.message || this.#refusal?.message || event.reason || `${failure} (${event.code})`;
    if (event.code === FINAL) this.#end(new CoveyError(this.#refusal?.status ?? "FAILED_PRECONDITION", reason));
    if (wasConnected || (unreached && !this.#error && !this.#pauseMs)) this.#options.onState?.(false, reason);
    if (this.#error) return;
    const pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(LONGEST_PAUSE_MS, Math.max(SHORTEST_PAUSE_MS, 2 * pauseMs));
    this.#retry = setTimeout(() => this.#connect(), pauseMs * (0.5 + Math.random() / 2));
  }

  #end(error) {
    if (this.#error) return;
    this.#error = error;
    clearTimeout(this.#retry);
    clearTimeout(this.#timer);
    this.#fail(error);
    for (const { reject } of this.#requests.values()) reject(error);
    this.#requests.clear();
  }
}

const isSubscribe = (each) => each.message.kind === "subscribe" || each.message.kind === "view";

function period(validFor) {
  if (validFor === undefined || Number.isFinite(validFor)) return validFor;
  throw invalid(`validFor is ${JSON.stringify(validFor) ?? typeof validFor}: expected a number of seconds`);
}

const invalid = (message) => new CoveyError("INVALID_ARGUMENT", message);

// JSON leaves out functions: the gateway would take the default of an argument in whose place one is.
function inPlace(what, type, filter, values, name, callback) {
  const expected = { type: [type, "string"], filter: [filter, "string"], values: [values, "object"], [name]: [callback, "function"] };
  for (const [argument, [value, kind]] of Object.entries(expected)) {
    if (typeof value === kind && value !== null) continue;
    throw invalid(`${what}: ${argument} is ${value === null ? null : typeof value}: expected ${kind}`);
  }
}

// The options, all of which have known names.
function checked(what, options, names) {
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) throw invalid(`${what}: option ${name}: expected ${names.join(", ") || "none"}`);
  }
  return options;
}

function socketUrl(url) {
  let base = null;
  try {
    base = new URL(url, globalThis.location?.href);
  } catch {
    // It is refused below.
  }
  if (!/^(http|ws)s?:$/.test(base?.protocol)) {
    throw invalid(`url is ${JSON.stringify(url)}: expected "http://HOST:PORT" or "https://HOST", or on a page a path`);
  }
  base.protocol = base.protocol.replace("http", "ws");
  base.pathname = base.pathname.replace(/\/$/, "") + "/socket";
  return base.href;
}

// A binary message: the length of a JSON head as uint32, the head, and an Arrow IPC stream.
function binaryMessage(data) {
  const length = new DataView(data).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
  return { ...head, arrow: new Uint8Array(data, 4 + length) };
}
