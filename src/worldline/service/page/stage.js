// The session in focus: its picture and its twin's, how to walk, what the last move cost and what it proved.

import { el, say } from "./dom.js";
import { brief, bytes, count, ms, sentence } from "./format.js";
import { holdButton } from "./keys.js";
import { MoveButtons } from "./choices.js";
import { drawSparkline } from "./sparkline.js";
import { isLive } from "./state.js";

const HINT_WALK = "Walk with the arrow keys or W A S D, and drag the tile to another host while walking.";
const HINT_PARKED = "It lies still. Resume it on a host, or drag its tile there.";
const HINT_DRAG = "It goes on by itself. Drag the tile to another host meanwhile.";

export class Stage {
  constructor(context) {
    Object.assign(this, {
      state: context.state,
      players: context.players,
      choices: context.choices,
      verbs: context.verbs,
    });
    this.mine = new Picture("The world");
    this.other = new Picture("Its twin");
    this.buttons = new MoveButtons(context);
    this.title = el("h2");
    this.where = el("span.where");
    this.alert = el("p.alert", { role: "alert", hidden: true });
    this.watching = el("p.hint");
    this.runsOn = el("input", {
      type: "checkbox",
      onchange: () => this.players.setRunsOn(this.state.focus.id, this.runsOn.checked),
    });
    this.park = el("button.quiet", { type: "button", onclick: () => this.verbs.park(this.state.focus) }, "Park");
    this.close = el("button.quiet", { type: "button", onclick: () => this.verbs.close(this.state.focus) }, "Close");
    this.pad = pad(context);
    this.hint = el("figcaption.hint");
    this.freeze = gauge("freeze", "Between the last frame before the move and the first after it");
    this.period = gauge("block period", "Median of the last 30 blocks");
    this.size = gauge("state", "Bytes that the next block depends on");
    this.spark = el("canvas.spark", {
      role: "img",
      "aria-label": "Block period over the last blocks, with moves marked",
    });
    this.node = el(
      "section.stage",
      { "aria-label": "The session in focus" },
      this.#head(),
      this.#pictures(),
      this.#controls(),
    );
  }

  update() {
    const session = this.state.focus;
    this.node.hidden = !session;
    if (!session) return;
    const player = this.players.get(session.id);
    const twin = session.twin ? this.players.get(session.twin) : null;
    say(this.title, session.id);
    this.runsOn.checked = this.players.runsOn(session.id);
    say(this.where, whereSentence(session, this.state.moves.get(session.move)));
    this.where.dataset.status = session.status;
    this.park.disabled = session.status !== "running";
    this.pad.hidden = !session.actions.includes("forward");
    say(this.hint, session.status === "parked" ? HINT_PARKED : this.pad.hidden ? HINT_DRAG : HINT_WALK);
    this.mine.update(session, player);
    this.other.node.hidden = !session.twin;
    if (session.twin) this.other.update(this.state.sessions.get(session.twin), twin);
    this.#twin(session, player);
    this.#gauges(session, player);
    this.#alert(session, player);
    this.buttons.update(session);
    if (player) drawSparkline(this.spark, player.periods);
  }

  #head() {
    return el(
      "header",
      {},
      this.title,
      this.where,
      el(
        "label.check",
        { title: "Asks for blocks also while no key is held" },
        this.runsOn,
        el("span", {}, "run on by itself"),
      ),
      this.park,
      this.close,
    );
  }

  #pictures() {
    return el(
      "div.pictures",
      {},
      this.mine.node,
      this.other.node,
      el("div.walk", {}, this.pad, el("figure.timeline", {}, this.spark, this.hint)),
    );
  }

  #controls() {
    return el(
      "div.controls",
      {},
      el("div.gauges", {}, this.freeze.node, this.period.node, this.size.node),
      this.buttons.node,
      el("div.choices", {}, this.choices.mode, this.choices.transport),
      this.choices.faults,
      this.alert,
      this.watching,
    );
  }

  #twin(session, player) {
    const twin = player?.twin;
    const verdict = this.other.verdict;
    const lost = session.twin && this.state.sessions.get(session.twin)?.status === "lost";
    verdict.dataset.equal = twin && !lost ? (twin.equal ? "yes" : "no") : "unknown";
    if (lost) say(verdict, "lost with its host");
    else if (!twin) say(verdict, "not compared yet");
    else if (twin.equal) say(verdict, `equal for ${count(twin.blocks)} blocks`);
    else say(verdict, `differs first in block ${count(twin.differs)}`);
  }

  #gauges(session, player) {
    const facts = this.state.facts(session);
    this.freeze.set(player?.gap ? ms(player.gap.ms) : "–");
    this.period.set(player?.periods.points.length ? ms(player.periods.medianMs) : "–");
    this.size.set(facts ? bytes(facts.state_bytes) : "–");
  }

  #alert(session, player) {
    const move = this.state.movesOf(session.id)[0];
    const refusal = ["refused", "returned"].includes(move?.outcome) ? move.error : null;
    const trouble =
      this.state.troubles.get(session.id) ??
      refusal ??
      (session.status === "lost" && session.why ? { code: "STATE_LOST", sentence: session.why } : null) ??
      player?.trouble;
    this.alert.hidden = !trouble;
    say(this.watching, player?.pace.watches ? "Another page walks here. Press a key to walk yourself." : "");
    if (!trouble) return;
    const goesOn = isLive(session) ? ` The world goes on at ${session.host}.` : "";
    this.alert.replaceChildren(
      el("code", {}, trouble.code),
      document.createTextNode(` ${sentence(trouble.sentence)}${goesOn}`),
    );
  }
}

class Picture {
  #screen = null;

  constructor(caption) {
    this.caption = el("span.caption", {}, caption);
    this.frame = el("div.frame");
    this.verdict = el("span.verdict");
    this.numbers = el("span.numbers");
    this.node = el("figure.picture", {}, this.frame, el("figcaption", {}, this.caption, this.verdict, this.numbers));
  }

  update(session, player) {
    if (player && player.screen !== this.#screen) {
      if (this.surface) this.#screen.remove(this.surface);
      const text = player.readout.kind === "text";
      this.surface = el(text ? "div.text" : "canvas", {
        tabindex: text ? 0 : null,
        role: "img",
        "aria-label": `What session ${session.id} shows`,
      });
      this.frame.replaceChildren(this.surface);
      this.#screen = player.screen;
      this.#screen.add(this.surface);
    }
    this.frame.dataset.status = session.status;
    say(
      this.numbers,
      player?.block == null
        ? ""
        : `block ${count(player.block)} · frame ${count(player.frame)} · epoch ${player.epoch}`,
    );
  }
}

function whereSentence(session, move) {
  switch (session.status) {
    case "running":
      return `${session.world}, seed ${session.seed}, on ${session.host}`;
    case "moving":
      return `on ${session.host}, ${movingWord(move)}: ${move?.story.at(-1) ?? "asked for"}`;
    case "parked":
      if (session.asleep) return `${session.world}, asleep since its player was idle: press a key to go on`;
      return `${session.world}, seed ${session.seed}, parked in image ${brief(session.image, 24)}`;
    case "lost":
      return `lost: ${session.why ?? "its host is gone"}`;
    default:
      return session.status;
  }
}

function movingWord(move) {
  if (!move) return "moving";
  return { park: "being parked", resume: `being resumed on ${move.target}` }[move.mode] ?? `moving to ${move.target}`;
}

function gauge(label, title) {
  const value = el("output", {}, "–");
  return {
    node: el("div.gauge", { title, data: { gauge: label } }, el("span", {}, label), value),
    set: (text) => say(value, text),
  };
}

function pad({ press, release }) {
  const arrow = (name, sign) => {
    const button = el(`button.pad-${name}`, { type: "button", "aria-label": name, title: name }, sign);
    holdButton(button, name, press, release);
    return button;
  };
  return el(
    "div.pad",
    { role: "group", "aria-label": "Walk" },
    arrow("forward", "▲"),
    arrow("left", "◀"),
    arrow("back", "▼"),
    arrow("right", "▶"),
  );
}
