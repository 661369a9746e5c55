// The quotes of one firm, a trader's thresholds, and what the trader got.

import { COLOURS, fitted } from "./drawing.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [46, 8, 8, 18];

export class Chart {
  #canvas;
  #years;
  #total;
  #quotes = []; // [position, value]
  #got = [];
  #value = new Map(); // by position
  #lines = new Map(); // by name, [position, value]
  #most = 1;

  // `years` are [position, year]; `total` is the number of all quotes.
  constructor(canvas, years, total) {
    [this.#canvas, this.#years, this.#total] = [canvas, years, total];
  }

  quote(position, value) {
    this.#quotes.push([position, value]);
    this.#value.set(position, value);
    this.#most = Math.max(this.#most, value);
  }

  got(position) {
    this.#got.push(position);
  }

  threshold(name, position, value) {
    if (!this.#lines.has(name)) this.#lines.set(name, []);
    this.#lines.get(name).push([position, value]);
  }

  // The value at a place of the page.
  valueAt(clientY) {
    const { top, height } = this.#canvas.getBoundingClientRect();
    const t = 1 - (clientY - top - TOP) / (height - TOP - BOTTOM);
    return Math.min(Math.max(t, 0), 1) * this.#top();
  }

  #top() {
    return this.#most * 1.08;
  }

  // `now` is the position up to which thresholds hold; `colour` that of what the trader has.
  draw(now, colour) {
    const { context, width, height } = fitted(this.#canvas);
    const x = (position) => LEFT + (position / this.#total) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - Math.min(value / this.#top(), 1.02)) * (height - TOP - BOTTOM);
    context.font = "11px system-ui";
    context.fillStyle = COLOURS.faint;
    context.strokeStyle = "#e6eaee";
    context.lineWidth = 1;
    context.textAlign = "center";
    for (const [position, year] of this.#years) {
      if (year % 2 && width < 700) continue;
      context.beginPath();
      context.moveTo(x(position), TOP);
      context.lineTo(x(position), height - BOTTOM);
      context.stroke();
      context.fillText(String(year), x(position) + 12, height - 5);
    }
    context.textAlign = "right";
    for (const share of [0, 0.5, 1]) context.fillText(short(share * this.#most), LEFT - 5, y(share * this.#most) + 4);
    this.#line(context, this.#quotes, x, y, COLOURS.vehicle, 1);
    context.fillStyle = colour;
    for (const position of this.#got) {
      const value = this.#value.get(position);
      if (value !== undefined) context.fillRect(x(position) - 1.5, y(value) - 1.5, 3, 3);
    }
    for (const steps of this.#lines.values()) {
      const corners = [];
      steps.forEach(([position, value], i) => {
        if (i) corners.push([position, steps[i - 1][1]]);
        corners.push([position, value]);
      });
      corners.push([Math.max(now, corners.at(-1)[0]), corners.at(-1)[1]]);
      this.#line(context, corners, x, y, colour === COLOURS.own ? COLOURS.own : COLOURS.control, 2);
    }
  }

  #line(context, points, x, y, colour, breadth) {
    context.strokeStyle = colour;
    context.lineWidth = breadth;
    context.beginPath();
    points.forEach(([position, value], i) => (i ? context.lineTo(x(position), y(value)) : context.moveTo(x(position), y(value))));
    context.stroke();
  }
}

const short = (value) => (value >= 1e6 ? `${(value / 1e6).toFixed(0)} M` : value >= 10 ? value.toFixed(0) : value.toFixed(1));
