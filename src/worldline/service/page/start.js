// The dialog that starts a world.

import { el, say } from "./dom.js";
import { sentence } from "./format.js";
import { ApiError, worlds } from "./api.js";

const KNOWN = {
  reference: ["reference", "A small trained world to walk through", {}],
  load: ["load", "Matrix-Game-2's state without its weights", { bytes: "64MB", block_period_ms: 200 }],
  lm: ["lm", "A language model: text that grows", {}],
};
const ORDER = ["reference", "load", "lm"];

export class StartDialog {
  constructor({ state, players, verbs }) {
    this.state = state;
    this.players = players;
    this.verbs = verbs;
    this.worlds = el("div.worlds", { role: "radiogroup", "aria-label": "World" });
    this.seed = field("Seed", { type: "number", min: 0, step: 1, value: 1, name: "seed", required: true });
    this.twin = el("input", { type: "checkbox", name: "twin", checked: true });
    this.host = el("select", { name: "host" });
    this.pause = field("Pause bound, ms", { type: "number", min: 1, step: "any", value: 1000, name: "pause" });
    this.deadline = field("Completion deadline, s", {
      type: "number",
      min: 0.001,
      step: "any",
      value: 30,
      name: "deadline",
    });
    this.options = el("textarea", { name: "options", rows: 3, spellcheck: "false" });
    this.error = el("p.error", { role: "alert", hidden: true });
    this.note = el(
      "p.hint",
      { role: "status", hidden: true },
      "A host that starts this world for the first time reads its weights and tests its plan. That can take a while.",
    );
    this.go = el("button.primary", { type: "submit", autofocus: true }, "Start");
    this.node = el("dialog.start", { "aria-label": "Start a world" }, this.#form());
  }

  async show() {
    const known = await this.#known();
    const chosen = this.#chosen() ?? known[0];
    this.worlds.replaceChildren(...known.map((world) => worldChoice(world, world === chosen)));
    this.host.replaceChildren(
      el("option", { value: "" }, "any with room"),
      ...this.state.hostList().map((host) => el("option", { value: host.id }, host.id)),
    );
    this.error.hidden = true;
    this.#defaults();
    this.node.showModal();
  }

  #form() {
    return el(
      "form",
      {
        method: "dialog",
        novalidate: true,
        onsubmit: (event) => this.#submit(event),
        onchange: (event) => event.target.name === "world" && this.#defaults(),
      },
      el("h2", {}, "Start a world"),
      this.worlds,
      this.seed.node,
      el(
        "label.check",
        {},
        this.twin,
        el("span", {}, "With a twin on another host, which never moves and must stay equal"),
      ),
      el(
        "details",
        {},
        el("summary", {}, "More"),
        el("div.grid", {}, this.pause.node, this.deadline.node),
        el("label", {}, el("span", {}, "Host"), this.host),
        el("label", {}, el("span", {}, "Options of the world, as JSON"), this.options),
      ),
      this.error,
      this.note,
      el("div.row", {}, el("button.quiet", { type: "button", onclick: () => this.node.close() }, "Cancel"), this.go),
    );
  }

  async #known() {
    const named = await worlds().catch(() => ORDER); // asked again at the next opening
    return [
      ...ORDER.filter((world) => named.includes(world)),
      ...named.filter((world) => !ORDER.includes(world)).sort(),
    ];
  }

  #chosen() {
    return this.worlds.querySelector("input:checked")?.value;
  }

  #defaults() {
    this.options.value = JSON.stringify(KNOWN[this.#chosen()]?.[2] ?? {});
  }

  async #submit(event) {
    event.preventDefault();
    this.error.hidden = true;
    const request = this.#request();
    if (!request) return;
    this.go.disabled = true;
    say(this.go, "Starting …");
    this.note.hidden = false;
    try {
      const session = await this.verbs.open(request);
      this.players.setRunsOn(session.id, true);
      this.node.close();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#refuse(`${error.code}: ${sentence(error.sentence)}`);
    } finally {
      this.go.disabled = false;
      say(this.go, "Start");
      this.note.hidden = true;
    }
  }

  /** What is asked for; null, and the reason shown, where a field can't be read. */
  #request() {
    let options;
    try {
      options = JSON.parse(this.options.value || "{}");
    } catch {
      return this.#refuse('The options are not JSON: write {} or, for example, {"bytes": "64MB"}.');
    }
    const seed = Number(this.seed.input.value);
    if (this.seed.input.value === "" || !Number.isInteger(seed) || seed < 0)
      return this.#refuse("The seed is a whole number from 0 on.");
    return {
      world: this.#chosen(),
      seed,
      options,
      contract: {
        tier: "T0",
        pause_bound_s: Number(this.pause.input.value) / 1000,
        completion_deadline_s: Number(this.deadline.input.value),
        readout_psnr_db_min: null,
      },
      host: this.host.value || null,
      twin: this.twin.checked,
    };
  }

  #refuse(words) {
    say(this.error, words);
    this.error.hidden = false;
    return null;
  }
}

function field(label, attributes) {
  const input = el("input", attributes);
  return { input, node: el("label", {}, el("span", {}, label), input) };
}

function worldChoice(world, checked) {
  const [name, about] = KNOWN[world] ?? [world.split(":").at(-1), world];
  return el(
    "label.world",
    {},
    el("input", { type: "radio", name: "world", value: world, checked }),
    el("span", {}, el("b", {}, name), el("small", {}, about)),
  );
}
