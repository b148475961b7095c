// Keeps the marked parts of a page up to date, and changes the theme.

/** Replaces the parts of the page that are marked `data-live` by their newest form. */
class LivePage {
  constructor(intervalMs) {
    this.intervalMs = intervalMs;
    this.offline = document.getElementById("offline");
    this.failures = 0;
    this.seen = new Map();
  }

  start() {
    if (document.querySelector("[data-live]")) this.plan();
  }

  plan() {
    const waitMs = this.intervalMs * Math.min(1 + this.failures, 5);
    setTimeout(() => this.look(), waitMs);
  }

  async look() {
    if (!document.hidden && !document.body.hasAttribute("data-still")) {
      try {
        const answer = await fetch(location.href, { headers: { accept: "text/html" } });
        if (answer.redirected && new URL(answer.url).pathname === "/login") {
          location.reload();
          return;
        }
        const text = await answer.text();
        const fresh = new DOMParser().parseFromString(text, "text/html");
        if (answer.ok && document.querySelector("[data-passes]")) {
          location.reload();
          return;
        }
        if (answer.ok) this.replace(fresh);
        const isKnown = answer.ok || document.querySelector(".failure");
        this.tell(isKnown ? "" : fresh.querySelector("h1")?.textContent ?? "This page failed");
      } catch {
        this.tell("The console does not answer");
      }
    }
    this.plan();
  }

  /** Says above the page why it is old; an empty text: it is not. */
  tell(problem) {
    this.failures = problem ? this.failures + 1 : 0;
    this.offline.hidden = !problem;
    if (problem) this.offline.textContent = `${problem}. What you see is old; trying again.`;
  }

  replace(fresh) {
    for (const old of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(old.id);
      if (!next || this.seen.get(old.id) === next.innerHTML) continue;
      this.seen.set(old.id, next.innerHTML);
      const focus = focusIn(old);
      const open = [...old.querySelectorAll("details")].map((details) => details.open);
      const places = [...old.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
      old.replaceChildren(...next.childNodes);
      [...old.querySelectorAll("details")].forEach((details, at) => {
        if (open[at]) details.open = true;
      });
      [...old.querySelectorAll(".scroll")].forEach((box, at) => {
        box.scrollLeft = places[at] ?? 0;
      });
      focus?.(old);
    }
    document.dispatchEvent(new CustomEvent("cordwood:replaced"));
  }
}

/** Remembers which link of a part has the focus; the result gives it back in the new part. */
function focusIn(part) {
  const active = document.activeElement;
  if (!active || !part.contains(active)) return null;
  const address = active.getAttribute("href");
  const at = [...part.querySelectorAll("a, button, input, summary")].indexOf(active);
  return (fresh) => {
    const all = [...fresh.querySelectorAll("a, button, input, summary")];
    const same = address ? all.find((item) => item.getAttribute("href") === address) : all[at];
    same?.focus({ preventScroll: true });
  };
}

function offerTheme() {
  const button = document.getElementById("theme");
  if (!button) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    try {
      localStorage.setItem("cordwood-theme", root.dataset.theme);
    } catch {
      // It lasts as long as the page.
    }
  });
}

/** A table that is wider than the screen can be scrolled by keyboard, too. */
function reachWideTables() {
  for (const box of document.querySelectorAll(".scroll")) {
    const isWide = box.scrollWidth > box.clientWidth;
    box.toggleAttribute("tabindex", false);
    if (!isWide) continue;
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", box.querySelector("caption")?.textContent ?? "Table");
  }
}

// On a narrow screen the pages are a row that can be scrolled.
document.querySelector(".side a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
reachWideTables();
addEventListener("resize", reachWideTables);
document.addEventListener("cordwood:replaced", reachWideTables);
offerTheme();
new LivePage(Number(document.body.dataset.interval) || 2000).start();
