// One session as a tile: what it shows now, where its block count is, and a menu with everything that dragging can do.

import { draggable } from "./drag.js";
import { el, say } from "./dom.js";
import { count } from "./format.js";
import { isLive } from "./state.js";

/** Without the sign that every drawn id begins with. */
const shortName = (id) => id.replace(/^s-/, "");

export class Tile {
  #screen = null;

  constructor(id, { state, players, verbs, lanes }) {
    this.id = id;
    this.state = state;
    this.players = players;
    this.verbs = verbs;
    this.preview = el("div.preview");
    this.name = el("span.name");
    this.sub = el("span.sub");
    this.badge = el("span.badge");
    this.menu = el("div.menu", { popover: "auto", role: "menu", id: `menu-${id}` });
    this.menuButton = el(
      "button.icon",
      { type: "button", popovertarget: `menu-${id}`, "aria-label": `Verbs for ${id}`, title: "Move, park, close" },
      "⋯",
    );
    this.menu.addEventListener("beforetoggle", (event) => event.newState === "open" && this.#fillMenu());
    this.menu.addEventListener("toggle", (event) => event.newState === "open" && this.menu.firstElementChild?.focus());
    this.menu.addEventListener("keydown", (event) => this.#walkMenu(event));
    this.node = el(
      "article.tile",
      { tabindex: 0, data: { session: id }, onclick: () => this.#select(), onkeydown: (event) => this.#key(event) },
      el("span.grip", { "data-grip": true, "aria-hidden": "true", title: "Drag to another host" }, "⠿"),
      this.preview,
      el("div.lines", {}, this.name, el("div.second", {}, this.badge, this.sub)),
      this.menuButton,
      this.menu,
    );
    draggable(this.node, {
      ghost: () => this.#ghost(),
      targets: () => lanes.targets(this.session),
      drop: (name) => this.#drop(name),
    });
  }

  get session() {
    return this.state.sessions.get(this.id);
  }

  update() {
    const { session, node } = this;
    if (!session) return;
    const player = this.players.get(session.id);
    this.#show(player);
    const twin = session.twin_of !== null;
    const block = player?.block ?? this.state.facts(session)?.block ?? null;
    say(this.name, twin ? `twin of ${shortName(session.twin_of)}` : shortName(session.id));
    say(this.sub, `${block === null ? "no block yet" : `block ${count(block)}`} · ${session.world}`);
    say(this.badge, twin && isLive(session) ? this.#twinWord(session) : this.#statusWord(session));
    this.badge.dataset.word = this.badge.textContent;
    this.badge.className = `badge ${session.status}`;
    node.classList.toggle("selected", this.state.focus?.id === (session.twin_of ?? session.id));
    node.classList.toggle("twin", twin);
    node.dataset.status = session.status;
    node.title = session.why ?? "";
    this.menuButton.hidden = twin && isLive(session);
    node.setAttribute(
      "aria-label",
      `Session ${session.id}, ${session.world}, ${session.status} ${session.host ? `on host ${session.host}` : ""}`,
    );
  }

  close() {
    this.#screen?.remove(this.canvas);
    this.node.remove();
  }

  #show(player) {
    if (!player || player.screen === this.#screen) return;
    this.canvas = el(player.readout.kind === "text" ? "div.text" : "canvas", { "aria-hidden": "true" });
    this.preview.replaceChildren(this.canvas);
    this.#screen = player.screen;
    this.#screen.add(this.canvas);
  }

  #twinWord(session) {
    const twin = this.players.get(session.twin_of)?.twin;
    if (!twin) return "";
    return twin.equal ? "equal" : "differs";
  }

  #statusWord({ status, move }) {
    const going = this.state.moves.get(move);
    if (status === "moving" && going) return going.mode === "park" ? "parking" : `→ ${going.target}`;
    return status === "running" ? "" : status;
  }

  #select() {
    this.state.select(this.session.twin_of ?? this.id);
  }

  #key(event) {
    if (event.target !== this.node || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    this.#select();
  }

  #ghost() {
    const copy = this.node.cloneNode(true);
    const canvas = copy.querySelector("canvas");
    if (canvas) canvas.getContext("2d").drawImage(this.canvas, 0, 0);
    copy.querySelector("[popover]")?.remove();
    copy.style.width = `${this.node.offsetWidth}px`;
    return copy;
  }

  #drop(name) {
    const { session } = this;
    if (name === "parked") this.verbs.park(session);
    else if (session.status === "parked") this.verbs.resume(session, name);
    else this.verbs.move(session, name);
  }

  #fillMenu() {
    const { session } = this;
    const others = this.state.hostList().filter((host) => host.id !== session.host);
    const item = (label, act) =>
      el(
        "button",
        { type: "button", role: "menuitem", tabindex: -1, onclick: () => (this.menu.hidePopover(), act()) },
        label,
      );
    const items = [];
    if (isLive(session)) {
      items.push(...others.map((host) => item(`Move to ${host.id}`, () => this.verbs.move(session, host.id))));
      items.push(item("Park", () => this.verbs.park(session)));
    }
    if (session.status === "parked") {
      items.push(
        ...this.state.hostList().map((host) => item(`Resume on ${host.id}`, () => this.verbs.resume(session, host.id))),
      );
    }
    items.push(item("Close", () => this.verbs.close(session)));
    this.menu.replaceChildren(...items);
    const box = this.menuButton.getBoundingClientRect();
    this.menu.style.top = `${box.bottom + 4}px`;
    this.menu.style.left = `${Math.max(8, Math.min(box.right - 160, window.innerWidth - 176))}px`;
  }

  #walkMenu(event) {
    const items = [...this.menu.children];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
  }
}
