// Runs as curves and tables. The data is in the page (a report), or comes as a stream of server-sent events (`segue watch --serve`).
// What a run says is only ever set as text, never as markup.
"use strict";

/** Curves that have a place of their own, in this order; the others are under "All other curves". */
const MAIN = ["train/loss", "train/tokens_per_s", "train/examples_per_s", "eval/value", "eval/loss", "eval/ppl", "train/lr", "train/grad_norm"];
/** What they are called. */
const TITLES = {
  "train/loss": "training loss (nats)", "train/tokens_per_s": "tokens a second", "train/examples_per_s": "examples a second",
  "eval/value": "evaluation", "eval/loss": "evaluation loss (nats)", "eval/ppl": "evaluation perplexity", "train/lr": "learning rate",
  "train/grad_norm": "gradient norm",
};
/** Rows of ranks that a table shows. */
const MOST_RANKS = 64;
/** Space around the curves, in pixels. */
const EDGE = { left: 52, right: 10, top: 8, bottom: 24 };
const HEIGHT = 220;
/** Sizes of values that an axis can show: their differences, ratios and a margin beyond them are numbers too. */
const SHOWN = { least: 1e-280, most: 1e280 };
/** Labels of an axis at most, whatever values it has. */
const MOST_TICKS = 40;

const $ = (id) => document.getElementById(id);

/** A new element; attributes as an object, children as text or elements. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function makeSvg(name, attributes = {}, text = null) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  return element;
}

// Numbers and times as text

function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
}

function bytes(value) {
  if (!value) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(value) / 10));
  return `${number(Number((value / 1024 ** power).toPrecision(3)))} ${units[power]}`;
}

function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

/** A moment as text: no calendar has all that a number can tell. */
function moment(seconds) {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? "–" : date.toISOString().slice(0, 16).replace("T", " ");
}

// Scales

/** Whether an axis can show a value. */
function isShown(value, logarithmic) {
  return Number.isFinite(value) && Math.abs(value) <= SHOWN.most && (!logarithmic || value >= SHOWN.least);
}

/** Round values between two others, about as many as wanted. */
function ticks(low, high, wanted) {
  // Values that differ by a rounding alone are one.
  if (high - low <= 1e-12 * Math.max(Math.abs(low), Math.abs(high))) return [low];
  const raw = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => power * factor >= raw);
  const first = Math.ceil(low / step) * step;
  const found = Array.from({ length: MOST_TICKS }, (_, i) => first + i * step).filter((at) => at <= high + step * 1e-9);
  return found.map((at) => (Math.abs(at) < step * 1e-9 ? 0 : at));
}

function logTicks(low, high) {
  const found = [];
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const narrow = Math.log10(high) - Math.log10(low) < 1.5;
  const step = Math.max(1, Math.ceil((last - first) / MOST_TICKS));
  for (let power = first; power <= last; power += step) {
    for (const factor of narrow ? [1, 2, 3, 5, 7] : [1]) found.push(factor * 10 ** power);
  }
  return found.filter((at) => at >= low * 0.999 && at <= high * 1.001);
}

/** The place of values between two pixels. */
function scale(low, high, from, to, logarithmic) {
  const by = logarithmic ? Math.log : (value) => value;
  const width = by(high) - by(low) || 1;
  return (value) => from + ((by(value) - by(low)) / width) * (to - from);
}

/** An exponential mean over earlier values, without the pull of its start. */
function smoothed(points, weight) {
  let mean = 0, sum = 0;
  return points.map(([step, value]) => {
    mean = weight * mean + (1 - weight) * value;
    sum = weight * sum + (1 - weight);
    return [step, mean / sum];
  });
}

// State

/** Runs by their number, each as it was told last. */
const runs = [];
/** Seconds that the clock of whoever sends is ahead of ours; a report has only the time that it was written at. */
let ahead = 0;
let reportedAt = null;
const charts = new Map();
const sections = [];

const now = () => reportedAt ?? Date.now() / 1000 + ahead;
const curve = (run, name) => (run.series ?? []).find(([found]) => found === name)?.[1] ?? [];
const lastOf = (run, name) => curve(run, name).at(-1)?.[1];
const colour = (run) => `c${run.index % 8} d${Math.floor(run.index / 8) % 3}`;

// A chart: one curve of all runs

class Chart {
  constructor(name) {
    this.name = name;
    this.title = TITLES[name] ?? name;
    /** The step that is looked at, or none. */
    this.at = null;
    /** Points that the axis cannot show. */
    this.leftOut = 0;
    this.svg = makeSvg("svg", { tabindex: "0", role: "img" });
    this.told = make("output", { "aria-live": "polite" });
    this.figure = make("figure", { "data-curve": name }, make("figcaption", {}, this.title), this.svg, this.told);
    this.svg.addEventListener("pointermove", (event) => this.look(this.stepAt(event.offsetX)));
    this.svg.addEventListener("pointerdown", (event) => this.look(this.stepAt(event.offsetX)));
    this.svg.addEventListener("pointerleave", () => this.look(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("blur", () => this.look(null));
    new ResizeObserver(() => this.draw()).observe(this.figure);
  }

  /** The runs that have this curve, as it is drawn. */
  lines() {
    const weight = Number($("smoothing").value);
    const logarithmic = $("scale").value === "log";
    this.leftOut = 0;
    const shown = (points) => {
      const kept = points.filter(([, value]) => isShown(value, logarithmic));
      this.leftOut += points.length - kept.length;
      return kept;
    };
    return runs.map((run) => ({ run, raw: shown(curve(run, this.name)) })).filter((line) => line.raw.length > 0)
      .map((line) => ({ ...line, points: weight > 0 ? smoothed(line.raw, weight) : line.raw, smooth: weight > 0 }));
  }

  steps() {
    const all = new Set(this.lines().flatMap((line) => line.raw.map(([step]) => step)));
    return [...all].sort((a, b) => a - b);
  }

  stepAt(x) {
    if (!this.unplace) return null;
    const wanted = this.unplace(x);
    let best = null;
    for (const step of this.steps()) if (best === null || Math.abs(step - wanted) < Math.abs(best - wanted)) best = step;
    return best;
  }

  key(event) {
    const steps = this.steps();
    const last = steps.length - 1;
    const here = this.at === null ? -1 : steps.findIndex((step) => step >= this.at);
    const far = Math.max(1, Math.round(steps.length / 10));
    const to = {
      ArrowRight: here < 0 ? 0 : here + 1, ArrowLeft: here < 0 ? last : here - 1, PageDown: here + far, PageUp: here - far, Home: 0, End: last,
    }[event.key];
    if (event.key === "Escape") this.look(null);
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.look(steps[Math.min(last, Math.max(0, to))]);
  }

  look(step) {
    if (step === this.at) return;
    this.at = step;
    this.draw();
  }

  draw() {
    const lines = this.lines();
    this.figure.hidden = lines.length === 0 && this.leftOut === 0;
    this.tell(lines);
    this.svg.replaceChildren();
    this.unplace = null;
    const width = this.svg.clientWidth;
    if (lines.length === 0 || width === 0) return;
    const values = lines.flatMap((line) => line.raw.map(([, value]) => value));
    const steps = lines.flatMap((line) => [line.raw[0][0], line.raw.at(-1)[0]]);
    const logarithmic = $("scale").value === "log";
    const [low, high] = this.range(Math.min(...spans(values)), Math.max(...spans(values)), logarithmic);
    const [first, last] = [Math.min(...steps), Math.max(...steps)];
    const [right, bottom] = [width - EDGE.right, HEIGHT - EDGE.bottom];
    const x = scale(first, last, EDGE.left, right, false);
    const y = scale(low, high, bottom, EDGE.top, logarithmic);
    this.unplace = scale(EDGE.left, right, first, last, false);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.drawAxes(x, y, { first, last, low, high, right, bottom, logarithmic });
    for (const line of lines) this.drawLine(line, x, y, { right, bottom });
    if (this.at !== null) this.drawCursor(lines, x, y, bottom);
  }

  range(low, high, logarithmic) {
    if (low === high) return logarithmic ? [low / 1.5, high * 1.5] : [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
    if (logarithmic) {
      const margin = 10 ** (0.04 * (Math.log10(high) - Math.log10(low)));
      return [low / margin, high * margin];
    }
    return [low - (high - low) * 0.04, high + (high - low) * 0.04];
  }

  drawAxes(x, y, { first, last, low, high, right, bottom, logarithmic }) {
    for (const at of logarithmic ? logTicks(low, high) : ticks(low, high, 5)) {
      this.svg.append(makeSvg("line", { class: "grid", x1: EDGE.left, x2: right, y1: y(at), y2: y(at) }));
      this.svg.append(makeSvg("text", { x: EDGE.left - 5, y: y(at) + 4, "text-anchor": "end" }, number(Number(at.toPrecision(6)))));
    }
    for (const at of ticks(first, last, Math.max(2, Math.floor((right - EDGE.left) / 90))).filter(Number.isInteger)) {
      const anchor = x(at) > right - 24 ? "end" : "middle";
      this.svg.append(makeSvg("text", { x: x(at), y: bottom + 16, "text-anchor": anchor }, number(at)));
    }
    this.svg.append(makeSvg("line", { class: "grid", x1: EDGE.left, x2: right, y1: bottom, y2: bottom }));
  }

  drawLine({ run, raw, points, smooth }, x, y, { right, bottom }) {
    // One of a pixel is seen.
    const restarts = new Map(run.restarts.map(x).filter((at) => at >= EDGE.left && at <= right).map((at) => [Math.round(at), at]));
    for (const at of restarts.values()) this.svg.append(makeSvg("line", { class: "restart", x1: at, x2: at, y1: EDGE.top, y2: bottom }));
    const path = (of) => of.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    if (smooth) this.svg.append(makeSvg("polyline", { class: `raw ${colour(run)}`, points: path(raw) }));
    this.svg.append(makeSvg("polyline", { class: `curve ${colour(run)}`, points: path(points) }));
    if (points.length < 40) {
      for (const [step, value] of points) this.svg.append(makeSvg("circle", { class: `dot ${colour(run)}`, cx: x(step), cy: y(value), r: 2.5 }));
    }
  }

  drawCursor(lines, x, y, bottom) {
    this.svg.append(makeSvg("line", { class: "cursor", x1: x(this.at), x2: x(this.at), y1: EDGE.top, y2: bottom }));
    for (const { run, points } of lines) {
      const point = nearest(points, this.at);
      this.svg.append(makeSvg("circle", { class: `dot ${colour(run)}`, cx: x(point[0]), cy: y(point[1]), r: 4 }));
    }
  }

  /** The values that are looked at, or the newest, in words. */
  tell(lines) {
    const point = (line) => (this.at === null ? line.points.at(-1) : nearest(line.points, this.at));
    const words = lines.slice(0, 8).map((line) => {
      const [step, value] = point(line);
      return `${runs.length > 1 ? `${line.run.name} ` : ""}${number(value)} at step ${number(step)}`;
    });
    this.svg.setAttribute("aria-label", `${this.title}: ${words.join("; ")}. Arrow keys move over the points.`);
    if (this.leftOut > 0) words.push(`${number(this.leftOut)} ${this.leftOut === 1 ? "value" : "values"} left out: beyond what the axis shows`);
    // What is looked at is read aloud, the steady growth of a live curve is not.
    this.told.setAttribute("aria-live", this.at === null ? "off" : "polite");
    this.told.textContent = words.join(" · ");
  }
}

/** The least and the greatest, of more values than a call takes arguments. */
const spans = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);

function nearest(points, step) {
  return points.reduce((best, point) => (Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best), points[0]);
}

function drawCharts() {
  const names = new Set(runs.flatMap((run) => (run.series ?? []).map(([name]) => name)));
  for (const name of [...MAIN.filter((main) => names.has(main)), ...[...names].filter((name) => !MAIN.includes(name)).sort()]) {
    if (charts.has(name)) continue;
    const chart = new Chart(name);
    charts.set(name, chart);
    if (!MAIN.includes(name)) $("others").append(chart.figure);
  }
  const main = MAIN.filter((name) => charts.has(name)).map((name) => charts.get(name).figure);
  // Moved only where one has come: an element that moves loses the focus.
  if ([...$("charts").children].some((child, i) => child !== main[i]) || $("charts").children.length !== main.length) $("charts").replaceChildren(...main);
  $("more").hidden = $("others").children.length === 0;
  for (const chart of charts.values()) chart.draw();
}

// Tables

/** A table; columns with names in small letters first, `text` ones to the left. */
function table(caption, columns, rows, isText = () => false) {
  const head = make("tr", {}, ...columns.map((name, i) => make("th", { scope: "col", class: isText(i) ? "text" : "" }, name)));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell, i) => make("td", { class: isText(i) ? "text" : "" }, cell))));
  const element = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  element.setAttribute("aria-label", caption);
  return element;
}

function drawSummary() {
  const columns = ["run", "model", "state", "step", "loss", "a second", "evaluation", "checkpoint", "attempts", "reported"];
  const rows = runs.map((run) => {
    const name = make("span", {}, make("span", { class: `key ${colour(run)}` }), run.name);
    const rate = lastOf(run, "train/tokens_per_s") ?? lastOf(run, "train/examples_per_s");
    const evaluation = lastOf(run, "eval/value") ?? lastOf(run, "eval/loss");
    const step = `${number(run.step)}${run.steps ? ` of ${number(run.steps)}` : ""}`;
    const reported = run.updated ? `${duration(now() - run.updated)} ago` : "–";
    return [name, run.model, run.state, step, number(lastOf(run, "train/loss")), number(rate), number(evaluation),
      number(run.checkpoints.at(-1)), number(attemptsOf(run)), reported];
  });
  $("summary").replaceChildren(table("Runs", columns, rows, (i) => i < 3));
}

/** Attempts so far, as far as rows and reports tell. */
const attemptsOf = (run) => Math.max(run.attempt, run.attempts.length, run.ranks.attempt);

function ranksOf(run) {
  const { from, ranks, written } = run.ranks;
  if (from === "nobody") return [make("p", { class: "faint" }, "Ranks are not known: no `segue launch` hears them.")];
  const furthest = ranks.reduce((most, rank) => Math.max(most, rank.step), 0);
  const age = (rank) => rank.age_s + (from === "live" ? Math.max(0, now() - written) : 0);
  const lag = (rank) => furthest - rank.step;
  const worst = [...ranks].sort((a, b) => lag(b) - lag(a) || age(b) - age(a) || a.rank - b.rank);
  const shown = ranks.length > MOST_RANKS ? worst.slice(0, MOST_RANKS) : ranks;
  const waits = (rank) => {
    if (rank.left) return "has ended";
    if (!rank.waits) return "–";
    return `${rank.waits.call}${rank.waits.peer === null ? "" : ` of rank ${rank.waits.peer}`}, ${duration(rank.waits.seconds)}`;
  };
  const rows = shown.map((rank) => [number(rank.rank), rank.host, number(rank.step), number(lag(rank)), bytes(rank.resident), `${duration(age(rank))} ago`, waits(rank)]);
  const where = from === "live" ? "as the supervisor hears them" : `at the end of attempt ${run.ranks.attempt}`;
  const some = ranks.length > MOST_RANKS ? `; ${MOST_RANKS} of ${ranks.length}, the furthest behind first` : "";
  return [make("p", { class: "faint" }, `${ranks.length} of ${run.ranks.world_size} ranks, ${where}${some}`),
    table("Ranks", ["rank", "host", "step", "behind", "memory", "heard", "waits for"], rows, (i) => i === 1 || i === 6)];
}

function attemptsTable(run) {
  const why = (attempt) => attempt.hung ?? (attempt.first ? `rank ${attempt.first.rank}: ${attempt.first.what}` : attempt.code === 0 ? "done" : `exit code ${attempt.code}`);
  const rows = run.attempts.map((attempt) => [number(attempt.attempt), moment(attempt.began),
    duration(attempt.seconds), number(attempt.world_size), `${number(attempt.from_step)} → ${number(attempt.to_step)}`, number(attempt.code), why(attempt), attempt.next]);
  return table("Attempts", ["attempt", "began (UTC)", "ran", "ranks", "checkpoints", "code", "why it ended", "next"], rows, (i) => i >= 6);
}

function samplesOf(run) {
  return run.samples.map((sample, i) => make("details", {}, make("summary", {}, `Sample ${i + 1}`),
    make("h3", {}, "Given"), make("pre", {}, sample.context), make("h3", {}, "Written"), make("pre", {}, sample.sample),
    make("h3", {}, "What really follows"), make("pre", {}, sample.reference)));
}

/** What is told of one run alone. Its regions stay, so that neither focus nor what is open is lost. */
class Section {
  constructor() {
    this.title = make("h2");
    this.problems = make("p", { class: "bad", role: "status" });
    this.ranks = this.region("Ranks");
    this.attempts = this.region("Attempts");
    this.checkpoints = make("p");
    this.samples = make("div");
    this.written = null;
    this.element = make("section", {}, this.title, this.problems, this.checkpoints, this.ranks, this.attempts, this.samples);
  }

  region(name) {
    return make("div", { class: "wide", role: "region", "aria-label": name, tabindex: "0" });
  }

  draw(run) {
    this.title.replaceChildren(make("span", { class: `key ${colour(run)}` }), run.name);
    this.problems.textContent = run.problems.join("; ");
    const kept = run.checkpoints.map(number).join(", ") || "none";
    const again = run.superseded ? ` · ${number(run.superseded)} reports of steps that were made again` : "";
    this.checkpoints.textContent = `Checkpoints of steps: ${kept}${again}`;
    this.ranks.replaceChildren(...ranksOf(run));
    this.attempts.hidden = run.attempts.length === 0;
    this.attempts.replaceChildren(attemptsTable(run));
    const written = JSON.stringify(run.samples);
    if (written !== this.written) this.samples.replaceChildren(...samplesOf(run));
    this.written = written;
  }
}

function drawTables() {
  drawSummary();
  runs.forEach((run, i) => {
    if (!sections[i]) {
      sections[i] = new Section();
      $("runs").append(sections[i].element);
    }
    sections[i].draw(run);
  });
}

// Where the data comes from

/** Takes what has changed; curves stay where they are not told again. */
function take(data) {
  ahead = data.now - Date.now() / 1000;
  for (const run of data.runs) runs[run.index] = { series: runs[run.index]?.series, ...run };
  document.title = runs.length === 1 ? `${runs[0].name} · Segue` : "Segue";
  if (data.runs.some((run) => run.series)) drawCharts();
  drawTables();
}

function follow() {
  // The token of the address is a cookie by now; it need not stand there for others to read.
  history.replaceState(null, "", location.pathname);
  const source = new EventSource("events");
  source.onmessage = (event) => {
    take(JSON.parse(event.data));
    $("state").textContent = `live, ${runs.length} ${runs.length === 1 ? "run" : "runs"}`;
  };
  source.onerror = () => {
    $("state").textContent = "no connection; trying again";
  };
  setInterval(drawTables, 1000);
}

for (const id of ["scale", "smoothing"]) $(id).addEventListener("input", drawCharts);
$("controls").addEventListener("submit", (event) => event.preventDefault());
$("more").addEventListener("toggle", drawCharts);
const embedded = $("data").textContent.trim();
if (embedded) {
  const data = JSON.parse(embedded);
  reportedAt = data.now;
  take(data);
  $("state").textContent = `as of ${moment(data.now)} UTC`;
} else {
  follow();
}
