// The traders' page: puts its parts together, and shows the verdicts.

import { Client } from "./covey/covey.js";
import { Chart } from "./chart_drawing.js";
import { COLOURS, element, number } from "./drawing.js";
import { Live } from "./live.js";
import { OverlayDrawing } from "./overlay_drawing.js";

const state = (window.page = { ready: false, own: 0, stats: null }); // read by tests
const SHOWN = {
  "buy lower": ["IBM", "price", (values) => ({ limit: values.limit })],
  "moving band": ["AAPL", "price", (values) => ({ low: values.low, high: values.high })],
  "busy days": ["MSFT", "volume", (values) => ({ usual: 0.7 * values.usual })],
};
const charts = [];
let overlay, own, firms, covey, subscription, published = 0;

const live = new Live({ start, news, stats: show, closed: () => say("The demonstration has ended.") });
const say = (text) => (element("state").textContent = text);

// A canvas below its title, which is text: it has as many lines as it needs on a phone.
function canvas(title, height) {
  const [figure, caption, made] = ["figure", "figcaption", "canvas"].map((name) => document.createElement(name));
  caption.textContent = title;
  made.setAttribute("aria-label", title);
  made.className = "chart";
  made.style.height = `${height}px`;
  figure.append(caption, made);
  element("charts").append(figure);
  return made;
}

async function start(first) {
  firms = first.firms;
  overlay = new OverlayDrawing(element("overlay"), first.brokers, first.links);
  for (const trader of first.traders) {
    const [firm, column, lines] = SHOWN[trader.name];
    const title = `${trader.name} at ${trader.broker}: ${trader.filter}`;
    const chart = new Chart(canvas(title, 160), first.years, first.total);
    charts.push({ name: trader.name, chart, firm, column, lines });
    for (const [name, value] of Object.entries(lines(trader.values))) chart.threshold(name, 0, value);
    row(trader.name);
  }
  const drawn = canvas(`yours at the gateway: ${first.own.filter}`, 160);
  own = { chart: new Chart(drawn, first.years, first.total), ...first.own };
  charts.push({ name: "yours", chart: own.chart, firm: own.firm, column: "price" });
  row("yours");
  drag(drawn);
  requestAnimationFrame(draw);
  covey = new Client("./covey");
  await change(own.limit, async () => {
    subscription = await covey.subscribe("Quote", own.filter, { limit: own.limit }, (quotes) => {
      state.own += quotes.length;
      live.report(quotes.map(({ firm, date }) => [firm, date]));
    });
  });
  state.ready = true;
}

function news({ first, quotes, traders }) {
  quotes.forEach(([firm, price, volume], i) => {
    for (const each of charts) if (each.firm === firms[firm]) each.chart.quote(first + i, each.column === "price" ? price : volume);
  });
  published = first + quotes.length;
  for (const each of charts) {
    const [got, changes] = traders[each.name] ?? [[], []];
    got.forEach((position) => each.chart.got(position));
    for (const [position, values] of changes) {
      for (const [name, value] of Object.entries(each.lines(values))) each.chart.threshold(name, position, value);
    }
  }
}

function draw() {
  requestAnimationFrame(draw);
  overlay.draw(performance.now() / 1000);
  for (const { chart, name } of charts) chart.draw(published, name === "yours" ? COLOURS.own : COLOURS.lit);
}

// --- the threshold of this page -----------------------------------------------------------------------

let changes = 0, wanted = null, moving = null;

async function change(limit, work) {
  const number = ++changes;
  await live.ask({ kind: "issue", change: number, limit }, "issued");
  own.chart.threshold("limit", published, limit);
  await work();
  live.send({ kind: "settled", change: number });
}

async function follow() {
  while (wanted !== null) {
    const limit = wanted;
    wanted = null;
    await change(limit, () => subscription.update({ limit }));
  }
}

function drag(drawn) {
  let dragging = false;
  drawn.onpointerdown = (event) => {
    dragging = true;
    drawn.setPointerCapture(event.pointerId);
    drawn.onpointermove(event);
  };
  drawn.onpointermove = (event) => {
    if (!dragging || !subscription) return;
    wanted = Math.round(own.chart.valueAt(event.clientY) * 10) / 10;
    moving ??= follow().finally(() => (moving = null));
  };
  drawn.onpointerup = drawn.onpointercancel = () => (dragging = false);
}

// --- the counters -------------------------------------------------------------------------------------

function row(name) {
  const made = element("verdicts").insertRow();
  made.id = name.replace(" ", "-");
  const head = document.createElement("th");
  head.textContent = name;
  made.append(head);
  for (let i = 0; i < 4; i++) made.insertCell();
}

function show(stats) {
  state.stats = stats;
  if (stats.links) overlay?.update(stats);
  element("published").textContent = number(stats.published);
  element("rate").textContent = number(stats.quotes_per_s);
  element("changes").textContent = number(stats.changes);
  element("delay").textContent = `${stats.delay_ms[0].toFixed(0)} / ${stats.delay_ms[1].toFixed(0)} ms`;
  if (stats.ended) {
    say("The replay has ended.");
    covey?.close();
  }
  for (const [name, verdict] of [...Object.entries(stats.verdicts), ["yours", stats.own]]) {
    const cells = element(name.replace(" ", "-"))?.cells;
    if (!cells) continue;
    [verdict.delivered, verdict.missed, verdict.duplicate, verdict.stale].forEach((each, i) => {
      cells[1 + i].textContent = number(each);
      if (i) cells[1 + i].classList.toggle("wrong", each > 0);
    });
  }
}
