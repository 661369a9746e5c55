// What the pages draw with: the colours of Okabe and Ito, and canvases as sharp as the screen.

export const COLOURS = {
  paper: "#ffffff",
  road: "#d5dbe1",
  vehicle: "#8793a0",
  faint: "#5b6670",
  broker: "#33414e",
  lit: "#0072b2",
  own: "#d55e00",
  box: "#56b4e9",
  events: "#0072b2",
  control: "#e69f00",
  missed: "#000000",
  duplicate: "#cc79a7",
  good: "#009e73",
};

// The context of a canvas, in CSS pixels, cleared.
export function fitted(canvas) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

export const number = (value) => Math.round(value).toLocaleString("en");
export const element = (id) => document.getElementById(id);

// Frames of the last second.
export class FrameRate {
  #times = [];

  frame(now) {
    this.#times.push(now);
    while (this.#times[0] < now - 1) this.#times.shift();
    return this.#times.length;
  }
}

// For a screenshot: the page has loaded when the server says so (site.py).
if (location.search === "?hold") document.body.append(Object.assign(new Image(), { src: "hold", hidden: true }));
