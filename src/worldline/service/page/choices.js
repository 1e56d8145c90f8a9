// How the next move goes: mode, transport, and a fault planted in it. Shared by drags, menus and buttons.

import { el, place, say } from "./dom.js";

const MODES = [
  ["precopy", "pre-copy", "Copies while the world plays, then stops for what is left"],
  ["freeze", "freeze", "Stops, copies everything, goes on"],
];
const TRANSPORTS = [
  ["tcp", "TCP", "Bytes over a socket, as between two machines"],
  ["shm", "shared memory", "The same memory handed over, nothing copied"],
];
const FAULTS = [
  ["", "none", "An honest move"],
  ["flip", "flip a byte", "One byte changes on the wire"],
  ["cut", "cut the link", "The link closes half-way"],
  ["kill-target", "kill the target", "The target host's process ends half-way"],
  ["lie", "lie about success", "The transport says all has landed and leaves 64 bytes out"],
  ["late-write", "write late", "The source goes on writing after it froze"],
];

export class Choices {
  #values = { mode: "precopy", transport: "tcp", fault: "" };

  constructor() {
    this.mode = this.#group("Mode", "mode", MODES);
    this.transport = this.#group("Transport", "transport", TRANSPORTS);
    this.faults = this.#group("Plant a fault in the next move", "fault", FAULTS);
    this.faults.classList.add("faults");
  }

  /** The choices for one move; a fault counts once. */
  take() {
    const { mode, transport, fault } = this.#values;
    this.set("fault", "");
    return { mode, transport, fault: fault || null };
  }

  get fault() {
    return this.#values.fault;
  }

  set(name, value) {
    this.#values[name] = value;
    for (const input of document.getElementsByName(name)) input.checked = input.value === value;
    this.faults.classList.toggle("armed", this.#values.fault !== "");
  }

  #group(legend, name, options) {
    return el(
      "fieldset.choice",
      { onchange: (event) => this.set(name, event.target.value), onpointerup: () => setTimeout(letGo, 0) },
      el("legend", {}, legend),
      ...options.map(([value, label, title]) =>
        el(
          "label",
          { title },
          el("input", { type: "radio", name, value, checked: value === this.#values[name] }),
          el("span", {}, label),
        ),
      ),
    );
  }
}

/** After a choice by pointer the arrow keys walk again; who came by keyboard keeps them for choosing. */
function letGo() {
  if (document.activeElement?.matches(".choice input")) document.activeElement.blur();
}

/** One button for each host that the session isn't on. */
export class MoveButtons {
  constructor({ state, verbs }) {
    this.state = state;
    this.verbs = verbs;
    this.buttons = new Map();
    this.node = el("div.move-buttons", { role: "group", "aria-label": "Move" });
  }

  update(session) {
    const hosts = this.state.hostList().filter((host) => host.id !== session.host);
    const parked = session.status === "parked";
    const nodes = hosts.map((host) => this.#button(host.id));
    for (const [index, button] of nodes.entries()) {
      say(button, `${parked ? "Resume on" : "Move to"} ${hosts[index].id}`);
      const { alive, cordon } = hosts[index];
      button.disabled = session.status === "moving" || session.status === "lost" || !alive || cordon !== null;
    }
    place(this.node, nodes);
  }

  #button(host) {
    if (!this.buttons.has(host))
      this.buttons.set(host, el("button.move", { type: "button", onclick: () => this.#go(host) }));
    return this.buttons.get(host);
  }

  #go(host) {
    const session = this.state.focus;
    if (session.status === "parked") this.verbs.resume(session, host);
    else this.verbs.move(session, host);
  }
}
