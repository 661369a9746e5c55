// The page's own socket: what is drawn, the counters, and what the page sets and reports.

export class Live {
  #socket;
  #waiting = new Map();
  #handlers;
  #reports = [];
  #marks = [];
  #earlierMarks = [];

  // `handlers` are functions by the kind of a message; `frame` gets binary ones.
  constructor(handlers) {
    this.#handlers = handlers;
    const url = new URL("live", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    this.#socket = new WebSocket(url);
    this.#socket.binaryType = "arraybuffer";
    this.#socket.onmessage = ({ data }) => this.#receive(data);
    this.#socket.onclose = () => handlers.closed();
    setInterval(() => this.#flush(), 100);
  }

  send(message) {
    if (this.#socket.readyState === 1) this.#socket.send(JSON.stringify(message));
  }

  // Send a message, and wait for an answer of this kind.
  ask(message, kind) {
    return new Promise((resolve) => {
      this.#waiting.set(kind, resolve);
      this.send(message);
    });
  }

  // For the oracle, in the order in which it came.
  report(item) {
    this.#reports.push(item);
  }

  // A mark is to be behind the events that came in one batch with it, which come in messages of their own: it waits for all
  // that comes between the next flush and the one after that.
  reportMark(mark) {
    this.#marks.push(mark);
  }

  #flush() {
    const items = [...this.#reports, ...this.#earlierMarks];
    if (items.length) this.send({ kind: "got", items });
    this.#reports = [];
    this.#earlierMarks = this.#marks;
    this.#marks = [];
  }

  #receive(data) {
    if (typeof data !== "string") return this.#handlers.frame(data);
    const message = JSON.parse(data);
    this.#waiting.get(message.kind)?.(message);
    this.#waiting.delete(message.kind);
    if (message.kind === "error") console.error(message.message);
    this.#handlers[message.kind]?.(message);
  }
}
