// The map: roads, vehicles, their boxes, and the box of this page.

import { COLOURS, fitted } from "./drawing.js";

const SCALE = 64;
const MARK_S = 0.7;

export class CityDrawing {
  #canvas;
  #start;
  #roads = null;
  #before = null;
  #now = null;
  #marks = [];

  constructor(canvas, start) {
    this.#canvas = canvas;
    this.#start = start;
  }

  // A frame of the server, as described in map_page.py. `at` in seconds.
  frame(data, at) {
    const [count, boxes] = new Uint32Array(data, 0, 2);
    let offset = 8;
    const take = (length) => {
      const column = new Uint16Array(data, offset, length);
      offset += 2 * length;
      return column;
    };
    this.#before = this.#now;
    this.#now = { at, count, x: take(count), y: take(count), corners: take(4 * boxes) };
    this.#now.lit = new Uint8Array(data, offset, count);
  }

  mark(faults, at) {
    for (const [kind, x, y] of faults.slice(-60)) this.#marks.push({ kind, x, y, at });
  }

  // Where in the city a place of the page is.
  place(clientX, clientY) {
    const { left, top, width, height } = this.#canvas.getBoundingClientRect();
    const extent = this.#start.extent;
    return [((clientX - left) / width) * extent, ((clientY - top) / height) * extent];
  }

  // `own` is the rectangle of this page's box, `inside` the ids that it has.
  draw(now, own, inside) {
    const { context, width } = fitted(this.#canvas);
    if (!this.#canvas.width) return; // it is being laid out
    const unit = width / this.#start.extent;
    this.#drawRoads(context, width, unit);
    if (!this.#now) return;
    const { count, corners, lit } = this.#now;
    const [x, y] = [this.#between("x", now), this.#between("y", now)];
    context.strokeStyle = COLOURS.box;
    context.fillStyle = "rgba(86, 180, 233, 0.10)";
    context.lineWidth = 1;
    for (let i = 0; i < corners.length; i += 4) {
      const [x0, x1, y0, y1] = corners.subarray(i, i + 4);
      context.fillRect((x0 / SCALE) * unit, (y0 / SCALE) * unit, ((x1 - x0) / SCALE) * unit, ((y1 - y0) / SCALE) * unit);
      context.strokeRect((x0 / SCALE) * unit, (y0 / SCALE) * unit, ((x1 - x0) / SCALE) * unit, ((y1 - y0) / SCALE) * unit);
    }
    const size = count > 3000 ? 2 : 3.4;
    const dots = (chosen, colour, edge) => {
      context.fillStyle = colour;
      context.beginPath();
      for (const i of chosen) context.rect((x(i) / SCALE) * unit - edge / 2, (y(i) / SCALE) * unit - edge / 2, edge, edge);
      context.fill();
    };
    const [on, off] = [[], []];
    for (let i = 0; i < count; i++) (lit[i] ? on : off).push(i);
    dots(off, COLOURS.vehicle, size);
    dots(on, COLOURS.lit, size + 1);
    if (own) {
      const [x0, x1, y0, y1] = own.map((each) => each * unit);
      context.fillStyle = "rgba(213, 94, 0, 0.10)";
      context.strokeStyle = COLOURS.own;
      context.lineWidth = 2.5;
      context.fillRect(x0, y0, x1 - x0, y1 - y0);
      context.strokeRect(x0, y0, x1 - x0, y1 - y0);
      dots(inside, COLOURS.own, size + 3);
    }
    this.#drawMarks(context, now, unit);
  }

  // Between the last two frames, so that vehicles glide; those that jump are not drawn on the way.
  #between(axis, now) {
    const [before, after] = [this.#before, this.#now];
    if (!before || before.count !== after.count) return (i) => after[axis][i];
    const t = Math.min(1, (now - after.at) / Math.max(after.at - before.at, 0.02));
    return (i) => before[axis][i] + (after[axis][i] - before[axis][i]) * t;
  }

  #drawMarks(context, now, unit) {
    this.#marks = this.#marks.filter((mark) => now - mark.at < MARK_S).slice(-300);
    context.lineWidth = 2;
    for (const { kind, x, y, at } of this.#marks) {
      const radius = 5 + 9 * ((now - at) / MARK_S);
      context.strokeStyle = COLOURS[kind];
      context.beginPath();
      if (kind === "missed") {
        context.moveTo(x * unit - 5, y * unit - 5);
        context.lineTo(x * unit + 5, y * unit + 5);
        context.moveTo(x * unit - 5, y * unit + 5);
        context.lineTo(x * unit + 5, y * unit - 5);
      } else context.arc(x * unit, y * unit, radius, 0, 7);
      context.stroke();
    }
  }

  // They do not move, so they are drawn once per size.
  #drawRoads(context, width, unit) {
    if (this.#roads?.width !== this.#canvas.width) {
      const roads = (this.#roads = document.createElement("canvas"));
      roads.width = this.#canvas.width;
      roads.height = this.#canvas.height;
      const brush = roads.getContext("2d");
      const ratio = this.#canvas.width / width;
      brush.setTransform(ratio * unit, 0, 0, ratio * unit, 0, 0);
      for (const [colour, breadth] of [[COLOURS.road, 13], ["#f6f8fa", 9.5]]) {
        brush.strokeStyle = colour;
        brush.lineWidth = breadth;
        brush.lineJoin = "round";
        brush.beginPath();
        for (const road of this.#start.roads) {
          road.forEach(([x, y], i) => (i ? brush.lineTo(x, y) : brush.moveTo(x, y)));
        }
        brush.stroke();
      }
      brush.font = "600 20px system-ui";
      brush.textAlign = "center";
      brush.textBaseline = "middle";
      for (const [name, [x, y]] of Object.entries(this.#start.brokers)) {
        brush.fillStyle = "rgba(51, 65, 78, 0.75)";
        brush.beginPath();
        brush.arc(x, y, 20, 0, 7);
        brush.fill();
        brush.fillStyle = "#fff";
        brush.fillText(name, x, y + 1);
      }
    }
    context.drawImage(this.#roads, 0, 0, width, width);
  }
}
