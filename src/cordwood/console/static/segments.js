// The arrow keys move over the segments; what has the focus is told in text below.

const details = () => document.getElementById("block-details");

function blocks(lane) {
  return [...lane.querySelectorAll("a.block")];
}

function tell(block) {
  const partition = block.closest(".lane")?.getAttribute("aria-label") ?? "";
  const text = details();
  if (text) text.textContent = `${partition}: ${block.getAttribute("aria-label")}`;
}

document.addEventListener("focusin", (event) => {
  const block = event.target.closest?.("a.block");
  if (block) tell(block);
});

document.addEventListener("pointerover", (event) => {
  const block = event.target.closest?.("a.block");
  if (block) tell(block);
});

document.addEventListener("keydown", (event) => {
  const block = document.activeElement?.closest?.("a.block");
  if (!block || event.altKey || event.ctrlKey || event.metaKey) return;
  const lane = block.closest(".lane");
  const lanes = [...document.querySelectorAll(".lane")];
  const row = blocks(lane);
  const at = row.indexOf(block);
  const beside = (step) => {
    const other = lanes[lanes.indexOf(lane) + step];
    if (!other) return null;
    const share = row.length > 1 ? at / (row.length - 1) : 1;
    const others = blocks(other);
    return others[Math.round(share * (others.length - 1))];
  };
  const next = {
    ArrowLeft: () => row[at - 1],
    ArrowRight: () => row[at + 1],
    ArrowUp: () => beside(-1),
    ArrowDown: () => beside(1),
    Home: () => row[0],
    End: () => row.at(-1),
  }[event.key];
  const wanted = next?.();
  if (!wanted) return;
  event.preventDefault();
  wanted.focus();
});
