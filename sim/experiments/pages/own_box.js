// The page's own box: its subscription through the gateway, and which vehicles are in it.
//
// Here alone is decided what is inside: a vehicle whose last report lies in the box, unless it has not been heard of
// for some of its reports. A box that has moved applies its new bounds to what it knows at once.

const MARK = "id < 0"; // of the events that are behind all others of their publisher

export class OwnBox {
  #client;
  #live;
  #subscription = null;
  #known = new Map(); // by id of a vehicle: {x, y, at}
  #wanted = null;
  #moving = null;
  #changes = 0;
  #filter;
  rectangle = null;
  how = "update";
  keepMs = 1000;
  delaysMs = [];

  constructor(client, live, filter) {
    this.#client = client;
    this.#live = live;
    this.#filter = filter;
  }

  // Resolves when the box has its first events to come.
  async open(rectangle) {
    await this.#client.subscribe("Vehicle", MARK, {}, (marks) => marks.forEach((mark) => this.#live.reportMark(mark)));
    await this.#change(rectangle, async () => (this.#subscription = await this.#subscribe(rectangle)));
  }

  // Only the newest of the moves that come while one is under way is carried out.
  move(rectangle) {
    this.rectangle = rectangle;
    this.#wanted = rectangle;
    this.#moving ??= this.#follow().finally(() => (this.#moving = null));
  }

  // Resolves when no move is under way.
  async idle() {
    while (this.#moving) await this.#moving;
  }

  // The vehicles in the box, as ids.
  contents() {
    const oldest = performance.now() - this.keepMs;
    const ids = [];
    for (const [id, { x, y, at }] of this.#known) {
      if (at < oldest) this.#known.delete(id);
      else if (inside(this.rectangle, x, y)) ids.push(id);
    }
    return ids;
  }

  async #follow() {
    while (this.#wanted) {
      const rectangle = this.#wanted;
      this.#wanted = null;
      const start = performance.now();
      if (this.how === "update") {
        await this.#change(rectangle, () => this.#subscription.update(values(rectangle), { gapless: true }));
      } else {
        await this.#change(rectangle, () => this.#subscribeAgain(rectangle));
      }
      this.delaysMs = [...this.delaysMs.slice(-49), performance.now() - start];
    }
  }

  // The oracle is told before and after.
  async #change(rectangle, work) {
    this.rectangle = this.#wanted ?? rectangle;
    const change = ++this.#changes;
    await this.#live.ask({ kind: "issue", change, rectangle }, "issued");
    await work();
    this.#live.send({ kind: "settled", change });
  }

  async #subscribeAgain(rectangle) {
    const old = this.#subscription;
    if (this.how === "unsubscribe-first") await old.unsubscribe();
    this.#subscription = await this.#subscribe(rectangle);
    if (this.how === "subscribe-first") await old.unsubscribe();
  }

  #subscribe(rectangle) {
    return this.#client.subscribe("Vehicle", this.#filter, values(rectangle), (events) => {
      const at = performance.now();
      for (const { id, x, y } of events) this.#known.set(id, { x, y, at });
      this.#live.report(events.map((event) => event.number));
    });
  }
}

const inside = ([x0, x1, y0, y1], x, y) => x >= x0 && x <= x1 && y >= y0 && y <= y1;
const values = ([x0, x1, y0, y1]) => ({ x0, x1, y0, y1 });
