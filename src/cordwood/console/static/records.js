// Follows a topic live, and shows the results of a search as they are found.
// Everything from records is put in by textContent: it is text, never markup.

const ROWS_MAX = 500;
const body = document.querySelector("#messages tbody");
const topic = location.pathname.split("/")[2];

function cell(name, text, className) {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function size(bytes) {
  const units = [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"]];
  for (const [unit, name] of units) if (bytes >= unit) return `${(bytes / unit).toFixed(1)} ${name}`;
  return `${bytes} B`;
}

function rowOf(record) {
  const row = document.createElement("tr");
  row.append(cell("td", record.partition, "number"));
  const head = cell("th", "", "number");
  head.scope = "row";
  const link = cell("a", record.offset);
  link.href = `/topics/${topic}/messages/${Number(record.partition)}/${Number(record.offset)}`;
  head.append(link);
  row.append(head, cell("td", record.time, "when"));
  row.append(record.key === null ? nothing("no key", "key") : cut("key", record.key));
  if (record.value === null) {
    row.append(nothing("tombstone", "value"));
  } else {
    const value = cut("value", "");
    value.firstChild.append(cell("span", record.kind, "kind"), document.createTextNode(record.value));
    row.append(value);
  }
  row.append(cell("td", record.header_count || "", "number"), cell("td", size(record.size), "number"));
  return row;
}

/** A cell that shows a few lines of a long text. */
function cut(className, text) {
  const made = cell("td", "", className);
  made.append(cell("span", text, "cut"));
  return made;
}

/** The table appears with its first row. */
function showTable() {
  body.closest(".scroll").classList.remove("without-rows");
  document.querySelector("main > .empty")?.remove();
}

function nothing(text, className) {
  const made = cell("td", "", className);
  made.append(cell("span", text, "nothing"));
  return made;
}

/** Why a stream was refused: its events do not say so. */
async function explain(address) {
  const stop = new AbortController();
  try {
    const answer = await fetch(address, { signal: stop.signal });
    return answer.ok ? "Interrupted. Try again." : (await answer.json()).error;
  } catch {
    return "The console does not answer.";
  } finally {
    stop.abort();
  }
}

class Tail {
  constructor(section) {
    this.address = new URL(section.dataset.address, location.href);
    this.text = section.querySelector("#tail-text");
    this.startButton = section.querySelector("#tail-start");
    this.pauseButton = section.querySelector("#tail-pause");
    this.shown = 0;
    this.dropped = 0;
    this.positions = "";
    section.hidden = false;
    this.startButton.addEventListener("click", () => this.start());
    this.pauseButton.addEventListener("click", () => this.pause());
  }

  start() {
    document.body.setAttribute("data-still", "");
    this.isWanted = true;
    this.connect();
    this.startButton.hidden = true;
    this.pauseButton.hidden = false;
    this.pauseButton.focus();
  }

  connect() {
    this.stream?.close();
    const address = new URL(this.address);
    if (this.positions) address.searchParams.set("positions", this.positions);
    this.stream = new EventSource(address);
    this.stream.addEventListener("ready", (event) => this.ready(JSON.parse(event.data)));
    this.stream.addEventListener("records", (event) => this.take(JSON.parse(event.data)));
    this.stream.addEventListener("problem", (event) => this.tell(JSON.parse(event.data).text));
    this.stream.onerror = () => this.failed(address);
  }

  ready(state) {
    this.positions = state.positions;
    this.tell("Following.");
  }

  /** A browser connects again by itself if the console went away, but not if it refused. */
  failed(address) {
    const isOver = this.stream.readyState === EventSource.CLOSED;
    this.tell("The console does not answer; trying again.");
    if (!isOver) return;
    explain(address).then((text) => {
      this.pause();
      this.tell(text);
    });
  }

  /** A browser has few connections to one server; tabs that nobody sees leave them to others. */
  hide(isHidden) {
    if (!this.isWanted) return;
    if (isHidden) this.stream?.close();
    else this.connect();
  }

  pause() {
    this.isWanted = false;
    this.stream?.close();
    this.tell("Paused.");
    this.startButton.textContent = "▶ Continue";
    this.startButton.hidden = false;
    this.pauseButton.hidden = true;
    this.startButton.focus();
  }

  take(step) {
    this.positions = step.positions;
    this.shown += step.rows.length;
    this.dropped += step.dropped;
    showTable();
    body.prepend(...step.rows.map(rowOf).reverse());
    while (body.rows.length > ROWS_MAX) body.deleteRow(-1);
    this.tell("Following.");
  }

  tell(text) {
    const counts = [];
    if (this.shown) counts.push(`${this.shown.toLocaleString("en")} shown`);
    if (this.dropped) counts.push(`${this.dropped.toLocaleString("en")} left out, because more arrive than can be shown`);
    this.text.textContent = [text, counts.join(", ")].filter(Boolean).join(" ");
  }
}

class Find {
  constructor(section) {
    this.bar = section.querySelector("#find-bar");
    this.text = section.querySelector("#find-text");
    this.stop = section.querySelector("#find-stop");
    this.stream = new EventSource(section.dataset.address);
    this.stream.addEventListener("hit", (event) => this.take(JSON.parse(event.data)));
    this.stream.addEventListener("progress", (event) => this.progress(JSON.parse(event.data)));
    this.stream.addEventListener("problem", (event) => this.end(JSON.parse(event.data).text));
    this.stream.onerror = () => this.failed(section.dataset.address);
    this.stop.addEventListener("click", () => this.end(`Stopped. ${this.last ?? ""}`));
  }

  take(hit) {
    showTable();
    body.append(rowOf(hit));
  }

  progress(state) {
    this.bar.value = state.share;
    const rate = state.seconds > 0.05 ? `, ${size(state.bytes_per_s)}/s` : "";
    const found = `${state.hits.toLocaleString("en")} found`;
    this.last = `${found}; ${size(state.scanned_bytes)} in ${state.seconds.toFixed(1)} s${rate}.`;
    if (state.end === null) {
      const left = state.share > 0.02 ? ` About ${Math.ceil((state.seconds / state.share) * (1 - state.share))} s left.` : "";
      this.text.textContent = `${Math.floor(state.share * 100)} %: ${this.last}${left}`;
    } else {
      const ends = { done: "Everything was searched:", cancelled: "Cancelled:", "time is up": "Stopped after five minutes:" };
      this.end(`${ends[state.end] ?? "Stopped, because " + state.end + ":"} ${this.last}`);
    }
  }

  failed(address) {
    const isRefused = this.stream.readyState === EventSource.CLOSED;
    this.end("The search was interrupted.");
    if (isRefused) explain(address).then((text) => this.end(text));
  }

  end(text) {
    this.stream.close();
    this.stop.hidden = true;
    this.text.textContent = text;
  }
}

/** Shows only the fields that the chosen beginning needs. */
function followChoice() {
  const from = document.getElementById("from");
  const show = () => {
    for (const name of ["offset", "time", "key"]) {
      document.querySelector(`.for-${name}`).hidden = from.value !== name;
    }
  };
  from.addEventListener("change", show);
  show();
}

followChoice();
const tail = document.getElementById("tail");
if (tail) {
  const followed = new Tail(tail);
  document.addEventListener("visibilitychange", () => followed.hide(document.hidden));
}
const find = document.getElementById("find");
if (find) new Find(find);
