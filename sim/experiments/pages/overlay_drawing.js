// The overlay: brokers, links, and on them events and updates as the brokers have counted them.
//
// A dot stands for as many events as the legend says; brokers are as dark as they are busy.

import { COLOURS, fitted } from "./drawing.js";

const DOT_S = 1.6; // from one end of a link to the other
const MOST_DOTS = 14;

export class OverlayDrawing {
  #canvas;
  #places;
  #links = [];
  #brokers = new Map();
  #dots = [];
  #due = new Map();

  // `places` are by broker its x and y in 0 to 1.
  constructor(canvas, places, links) {
    this.#canvas = canvas;
    this.#places = places;
    this.#links = links.map(([a, b]) => ({ a, b, there: none(), back: none() }));
  }

  update({ links, brokers }) {
    this.#links = links;
    this.#brokers = new Map(brokers.map((each) => [each.name, each]));
  }

  // `now` in seconds.
  draw(now) {
    const { context, width, height } = fitted(this.#canvas);
    const at = (broker) => {
      const [x, y] = this.#places[broker];
      return [48 + x * (width - 96), 22 + y * (height - 56)];
    };
    for (const { a, b, there, back } of this.#links) {
      const [[ax, ay], [bx, by]] = [at(a), at(b)];
      context.strokeStyle = COLOURS.road;
      context.lineWidth = 2;
      context.beginPath();
      context.moveTo(ax, ay);
      context.lineTo(bx, by);
      context.stroke();
      this.#emit(now, a, b, there);
      this.#emit(now, b, a, back);
    }
    this.#dots = this.#dots.filter((dot) => now - dot.at < DOT_S);
    for (const dot of this.#dots) {
      const [[ax, ay], [bx, by]] = [at(dot.from), at(dot.to)];
      const t = Math.max(0, (now - dot.at) / DOT_S);
      const length = Math.hypot(bx - ax, by - ay) || 1;
      const [ox, oy] = [(-(by - ay) / length) * 5, ((bx - ax) / length) * 5]; // each direction has its side
      context.fillStyle = dot.colour;
      context.beginPath();
      const [x, y] = [ax + (bx - ax) * t + ox, ay + (by - ay) * t + oy];
      if (dot.square) context.rect(x - 2.5, y - 2.5, 5, 5);
      else context.arc(x, y, 2.6, 0, 7);
      context.fill();
    }
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const broker of Object.keys(this.#places)) {
      const [x, y] = at(broker);
      context.fillStyle = COLOURS.broker;
      context.beginPath();
      context.arc(x, y, 14, 0, 7);
      context.fill();
      context.fillStyle = "#fff";
      context.font = "600 12px system-ui";
      context.fillText(broker, x, y);
      const known = this.#brokers.get(broker);
      if (known) {
        context.fillStyle = COLOURS.faint;
        context.font = "11px system-ui";
        context.strokeStyle = "rgba(255, 255, 255, 0.85)";
        context.lineWidth = 4;
        const text = `${Math.round(known.events).toLocaleString("en")} events/s`;
        context.strokeText(text, x, y + 23);
        context.fillText(text, x, y + 23);
      }
    }
  }

  // Dots at a rate that grows with the logarithm, so that one update and a thousand events can both be seen.
  #emit(now, from, to, { events, control }) {
    for (const [kind, rate, colour] of [["e", events, COLOURS.events], ["c", control, COLOURS.control]]) {
      if (rate < 0.5) continue;
      const key = from + to + kind;
      const pause = DOT_S / Math.min(MOST_DOTS, 1 + 1.6 * Math.log2(1 + rate));
      let due = Math.max(this.#due.get(key) ?? now + Math.random() * pause, now - pause);
      while (due <= now) {
        this.#dots.push({ from, to, at: due, colour, square: kind === "c" });
        due += pause;
      }
      this.#due.set(key, due);
    }
  }
}

const none = () => ({ events: 0, control: 0 });
