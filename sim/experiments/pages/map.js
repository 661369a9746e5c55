// The map page: puts its parts together, and shows the counters.

import { Client } from "./covey/covey.js";
import { CityDrawing } from "./city_drawing.js";
import { element, FrameRate, number } from "./drawing.js";
import { Live } from "./live.js";
import { OverlayDrawing } from "./overlay_drawing.js";
import { OwnBox } from "./own_box.js";

const WAYS = ["update", "unsubscribe-first", "subscribe-first"];
const seconds = () => performance.now() / 1000;
const state = (window.page = { ready: false, lit: 0, fps: 0, stats: null }); // read by tests
const rates = new FrameRate();
const delays = {};
let city, overlay, box, dragging = null;

const live = new Live({
  start,
  frame: (data) => city?.frame(data, seconds()),
  stats: show,
  closed: () => (element("state").textContent = "The demonstration has ended."),
});

async function start(first) {
  const { settings, extent } = first;
  city = new CityDrawing(element("map"), first);
  const places = Object.fromEntries(
    Object.entries(first.brokers).map(([name, [x, y]]) => [name, [(x / extent - 0.19) / 0.62, (y / extent - 0.23) / 0.54]]),
  );
  overlay = new OverlayDrawing(element("overlay"), places, first.links);
  slider("boxes", settings.boxes, Math.min(200, settings.vehicles));
  slider("rate", settings.rate);
  slider("speed", settings.speed);
  slider("changes", settings.changes);
  const covey = new Client("./covey", {
    onNotice: (notice) => notice.kind === "gap" && live.send({ kind: "lost" }),
    onState: (connected, how) => how === "afresh" && live.send({ kind: "lost" }),
  });
  box = new OwnBox(covey, live, first.filter);
  state.box = box;
  state.start = first;
  box.how = settings.how;
  requestAnimationFrame(draw);
  await box.open([400, 600, 300, 500]);
  state.ready = true;
}

function slider(name, value, max) {
  const [input, output] = [element(name), element(`${name}-value`)];
  if (max) input.max = max;
  input.value = value;
  output.value = input.value;
  input.oninput = () => {
    output.value = input.value;
    live.send({ kind: "set", name, value: input.valueAsNumber });
  };
}

function draw() {
  requestAnimationFrame(draw);
  const now = seconds();
  const inside = box?.rectangle ? box.contents() : [];
  state.lit = inside.length;
  state.fps = rates.frame(now);
  city.draw(now, box?.rectangle, inside);
  overlay.draw(now);
  element("own-lit").textContent = number(inside.length);
}

// --- the counters ------------------------------------------------------------------------------------

function show(stats) {
  state.stats = stats;
  if (!overlay) return;
  overlay.update(stats);
  city.mark(stats.faults, seconds());
  box.keepMs = 1000 * stats.keep_s;
  for (const [id, value] of [
    ["vehicles", stats.vehicles], ["reports", stats.per_s.reports], ["delivered", stats.per_s.delivered],
    ["changed", stats.per_s.changes], ["lit", stats.lit], ["fps", state.fps],
  ]) element(id).textContent = number(value ?? 0);
  keepsUp(stats);
  element("own-inside").textContent = stats.inside === null ? "…" : number(stats.inside);
  if (stats.control_per_change > 0) {
    delays[stats.how] = { delay: stats.delay_ms, control: stats.control_per_change };
  }
  for (const way of WAYS) row(way, stats.eras[way], delays[way], way === stats.how);
  element("others").textContent = WAYS.flatMap((way) => others(way, stats.eras[way])).join("; ");
}

// Faults that are rare, and have no column.
function others(way, counts) {
  const told = [];
  if (counts?.late) told.push(`${number(counts.late)} late`);
  if (counts?.stray) told.push(`${number(counts.stray)} in no possible box`);
  return told.length ? [`${way}: ${told.join(", ")}`] : [];
}

// A machine that is behind makes fewer events than the sliders ask for.
function keepsUp({ behind, per_s: reached, demanded_per_s: demanded }) {
  const shares = ["reports", "changes"].map((name) => `${number(reached[name])} of ${number(demanded[name])} ${name}/s`);
  element("behind").textContent = behind ? `This machine does not keep up: it reaches ${shares.join(" and ")}.` : "";
}

function row(way, counts, costs, current) {
  const cells = element(way).cells;
  element(way).classList.toggle("current", current);
  if (!counts) return;
  const faults = [counts.missed, counts.duplicate];
  [counts.expected, ...faults].forEach((each, i) => (cells[3 + i].textContent = number(each)));
  faults.forEach((each, i) => cells[4 + i].classList.toggle("wrong", each > 0));
  if (costs) {
    cells[1].textContent = costs.control.toFixed(1);
    cells[2].textContent = `${costs.delay[0].toFixed(0)} / ${costs.delay[1].toFixed(0)}`;
  }
}

// --- the hand ----------------------------------------------------------------------------------------

const map = element("map");
map.onpointerdown = (event) => {
  if (!box?.rectangle) return;
  const [x, y] = city.place(event.clientX, event.clientY);
  const [x0, x1, y0, y1] = box.rectangle;
  const grabbed = x >= x0 && x <= x1 && y >= y0 && y <= y1;
  dragging = grabbed ? [x - x0, y - y0] : [(x1 - x0) / 2, (y1 - y0) / 2]; // elsewhere: it jumps there
  map.setPointerCapture(event.pointerId);
  map.onpointermove(event);
};
map.onpointermove = (event) => {
  if (!dragging) return;
  const [x, y] = city.place(event.clientX, event.clientY);
  const [x0, x1, y0, y1] = box.rectangle;
  const extent = state.start.extent;
  const left = Math.min(Math.max(x - dragging[0], 0), extent - (x1 - x0));
  const top = Math.min(Math.max(y - dragging[1], 0), extent - (y1 - y0));
  box.move([left, left + x1 - x0, top, top + y1 - y0]);
};
map.onpointerup = map.onpointercancel = () => (dragging = null);

document.querySelectorAll("input[name=how]").forEach((input) => {
  input.onchange = async () => {
    dragging = null;
    await box.idle();
    const { how } = await live.ask({ kind: "switch", how: input.value }, "switched");
    box.how = how;
  };
});
