// The hosts side by side, with the sessions on them, and the shelf of those that lie parked or are lost.

import { el, Keyed, place, say } from "./dom.js";
import { bytes, plural, sentence } from "./format.js";
import { Operations } from "./operations.js";
import { isLive } from "./state.js";
import { Tile } from "./tiles.js";

export class Lanes {
  constructor(context) {
    this.state = context.state;
    this.operations = new Operations(context);
    this.trouble = el("p.alert", { role: "alert", hidden: true });
    this.row = el("div.lanes", { role: "list", "aria-label": "Hosts" });
    this.shelf = new Shelf();
    this.node = el("section.fleet", { "aria-label": "Hosts and sessions" }, this.row, this.operations.node, this.trouble);
    this.hosts = new Keyed(() => new Lane(context.verbs));
    this.tiles = new Keyed((id) => new Tile(id, { ...context, lanes: this }));
  }

  update() {
    const { state } = this;
    const hosts = state.hostList();
    const shown = [...state.sessions.values()].filter((session) => session.status !== "closed");
    const tiles = new Map(this.tiles.of(shown.map((session) => session.id)).map((tile) => [tile.id, tile]));
    for (const tile of tiles.values()) tile.update();
    const nodes = (sessions) => sessions.map((session) => tiles.get(session.id).node);
    const before = new Map([...tiles.values()].map(({ node }) => [node, node.parentElement && spot(node)]));
    const views = this.hosts.of(hosts.map((host) => host.id));
    views.forEach((lane, index) => lane.update(hosts[index], state, nodes(state.on(hosts[index].id))));
    place(this.row, [...views.map((lane) => lane.node), this.shelf.node]);
    this.shelf.update(nodes(state.shelved()), hosts.length > 0);
    this.operations.update();
    this.trouble.hidden = state.fleetTrouble === null;
    say(this.trouble, state.fleetTrouble ? sentence(state.fleetTrouble.sentence) : "");
    for (const [node, from] of before) if (from && from.parent !== node.parentElement) glide(node, from);
  }

  /** Where a session may be dropped. */
  targets(session) {
    const hosts = [...this.row.children].filter(
      (lane) => lane.dataset.host && lane.dataset.host !== session.host && !lane.classList.contains("cordoned"),
    );
    if (session.twin_of !== null || session.status === "lost") return [];
    return isLive(session) ? [...hosts, this.shelf.node] : hosts;
  }
}

/** Its lower edge fades while tiles lie below it: it scrolls. */
class Tiles {
  constructor() {
    this.node = el("div.tiles", { onscroll: () => this.#fade() });
  }

  update(tiles) {
    place(this.node, tiles);
    this.#fade();
  }

  #fade() {
    const { scrollHeight, scrollTop, clientHeight } = this.node;
    this.node.classList.toggle("more", scrollHeight - scrollTop - clientHeight > 4);
  }
}

class Lane {
  constructor(verbs) {
    this.name = el("h3");
    this.cordon = el("span.badge.moving");
    this.act = el("button.quiet.small", { type: "button", onclick: () => this.#act(verbs) });
    this.plan = el("span.plan");
    this.memory = el("span.memory");
    this.meter = el("meter", { min: 0, "aria-label": "Memory in use" });
    this.tiles = new Tiles();
    this.empty = el("p.hint", {}, "No session here. Drag one over.");
    this.node = el(
      "section.lane",
      { role: "listitem" },
      el("header", {}, this.name, this.plan, this.cordon, this.memory),
      this.meter,
      this.empty,
      this.tiles.node,
      this.act,
    );
  }

  #act(verbs) {
    if (this.host.cordon) verbs.uncordon(this.host);
    else verbs.drain(this.host);
  }

  update(host, state, tiles) {
    this.host = host;
    this.node.classList.toggle("cordoned", Boolean(host.cordon));
    say(this.cordon, host.cordon ? (host.cordon.released ? "given back" : "cordoned") : "");
    say(this.act, host.cordon ? "Uncordon" : "Drain");
    this.act.title = host.cordon ? "Let it take sessions again" : "Move every session away, and take no more";
    this.act.hidden = !host.alive || (!host.cordon && tiles.length === 0);
    this.node.dataset.drop = host.id;
    this.node.dataset.host = host.id;
    this.node.classList.toggle("gone", !host.alive);
    this.node.setAttribute("aria-label", `Host ${host.id}`);
    say(this.name, host.id);
    const plan = host.plan_digest;
    const letter = plan ? state.planLetter(plan) : null;
    say(this.plan, letter ? `plan ${letter}` : "no plan yet");
    this.plan.dataset.letter = letter ?? "";
    this.plan.title = plan
      ? `Hosts with an equal plan compute equal bits. Plan ${plan}`
      : "A host has a plan once it has built a world";
    const { memory_bytes: total = 0, memory_used_bytes: used = 0 } = host.facts ?? {};
    const absent = host.gone ? "gone" : "not reached";
    say(this.memory, host.alive ? `${bytes(used)} of ${bytes(total)}` : absent);
    this.meter.max = total || 1;
    this.meter.value = used;
    this.meter.title = this.memory.textContent;
    this.tiles.update(tiles);
    this.empty.hidden = tiles.length > 0;
    const open = host.cordon ? "It takes no sessions." : "No session here. Drag one over.";
    say(this.empty, host.alive ? open : `This host is ${absent}.`);
  }
}

class Shelf {
  constructor() {
    this.tiles = new Tiles();
    this.count = el("span.memory");
    this.hint = el("p.hint", {}, "Drop a tile here to keep it as a verified image on disk.");
    this.node = el(
      "section.lane.shelf",
      { role: "listitem", "aria-label": "Parked and lost sessions", data: { drop: "parked" } },
      el("header", {}, el("h3", {}, "parked"), this.count),
      this.hint,
      this.tiles.node,
    );
  }

  update(tiles, any) {
    this.node.hidden = !any;
    say(this.count, tiles.length ? plural(tiles.length, "session") : "");
    this.tiles.update(tiles);
    this.hint.hidden = tiles.length > 0;
  }
}

function spot(node) {
  const { left, top } = node.getBoundingClientRect();
  return { left, top, parent: node.parentElement };
}

/** Shows a tile that has changed its host on its way there. */
function glide(node, from) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const { left, top } = node.getBoundingClientRect();
  const start = `translate(${from.left - left}px, ${from.top - top}px)`;
  node.animate(
    [
      { transform: start, zIndex: 5 },
      { transform: "none", zIndex: 5 },
    ],
    { duration: 280, easing: "ease-out" },
  );
}
