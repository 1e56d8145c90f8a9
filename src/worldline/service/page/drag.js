// Dragging with the pointer, so that keys go on working meanwhile (the browser's own drag and drop swallows them).

const START_PX = 6;

/**
 * Lets `handle` be dragged. `targets()` gives the elements it may be dropped on, each with `data-drop`; `drop(name)` is
 * called with that name. A click stays a click. Escape ends a drag without a drop.
 */
export function draggable(handle, { ghost, targets, drop }) {
  handle.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button, a, select, input, summary")) return;
    if (event.pointerType === "touch" && !event.target.closest("[data-grip]")) return; // the rest scrolls the page
    new Drag(handle, event, { ghost, targets, drop });
  });
}

class Drag {
  #over = null;
  #ghost = null;
  #ending = new AbortController();

  constructor(handle, event, options) {
    this.options = options;
    this.from = { x: event.clientX, y: event.clientY };
    this.pointer = event.pointerId;
    const { signal } = this.#ending;
    window.addEventListener("pointermove", (move) => this.#move(move), { signal });
    window.addEventListener("pointerup", (up) => this.#end(up, true), { signal });
    window.addEventListener("pointercancel", (cancel) => this.#end(cancel, false), { signal });
    window.addEventListener("keydown", (key) => key.key === "Escape" && this.#stop(), { signal, capture: true });
    handle.addEventListener("dragstart", (native) => native.preventDefault(), { signal });
  }

  #move(event) {
    if (event.pointerId !== this.pointer) return;
    const { x, y } = this.from;
    if (!this.#ghost && Math.hypot(event.clientX - x, event.clientY - y) < START_PX) return;
    if (!this.#ghost) this.#begin();
    event.preventDefault();
    this.#ghost.style.transform = `translate(${event.clientX + 8}px, ${event.clientY + 8}px)`;
    const under = this.options.targets().find((target) => contains(target, event));
    if (under === this.#over) return;
    this.#over?.classList.remove("over");
    this.#over = under ?? null;
    this.#over?.classList.add("over");
  }

  #begin() {
    this.#ghost = this.options.ghost();
    this.#ghost.classList.add("ghost");
    document.body.append(this.#ghost);
    document.body.classList.add("dragging");
    for (const target of this.options.targets()) target.classList.add("may-drop");
    document.getSelection()?.removeAllRanges();
  }

  #end(event, dropped) {
    if (event.pointerId !== this.pointer) return;
    const over = this.#over;
    const moved = this.#ghost !== null;
    this.#stop();
    if (moved) window.addEventListener("click", swallow, { capture: true, once: true });
    if (moved) setTimeout(() => window.removeEventListener("click", swallow, { capture: true }), 0);
    if (dropped && over) this.options.drop(over.dataset.drop);
  }

  #stop() {
    this.#ending.abort();
    this.#ghost?.remove();
    document.body.classList.remove("dragging");
    for (const marked of document.querySelectorAll(".may-drop, .over")) marked.classList.remove("may-drop", "over");
  }
}

function swallow(event) {
  event.stopPropagation();
  event.preventDefault();
}

function contains(element, { clientX, clientY }) {
  const box = element.getBoundingClientRect();
  return clientX >= box.left && clientX < box.right && clientY >= box.top && clientY < box.bottom;
}
