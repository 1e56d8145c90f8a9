// The journal: moves, parks and resumes, newest first, each with its story.

import { el, Keyed, place, say } from "./dom.js";
import { clock, ms, sentence } from "./format.js";
import { receiptView } from "./receipt.js";
import { receiptUrl } from "./api.js";

const NO_RECEIPT = "A move is proven by two digests of the whole state, one from each host.";

export class Moves {
  #proven;

  constructor({ state }) {
    this.state = state;
    this.list = el("ol.moves");
    this.empty = el("p.hint", {}, "No move yet.");
    this.proof = el("div.proof");
    this.node = el(
      "aside",
      {},
      el("section.journal", { "aria-label": "Proof of the last move" }, el("h2", {}, "Receipt"), this.proof),
      el("section.journal", { "aria-label": "Moves" }, el("h2", {}, "Moves"), this.empty, this.list),
    );
    this.entries = new Keyed(() => new Entry());
  }

  update() {
    const moves = this.state.recentMoves();
    const entries = this.entries.of(moves.map((move) => move.id));
    entries.forEach((entry, index) => entry.update(moves[index]));
    place(
      this.list,
      entries.map((entry) => entry.node),
    );
    this.empty.hidden = moves.length > 0;
    this.#prove();
  }

  /** The receipt of the focused session's last move that has one. */
  #prove() {
    const { focus } = this.state;
    const proven = focus ? this.state.movesOf(focus.id).find((move) => move.receipt && move.outcome === "done") : null;
    const id = proven?.receipt.id ?? null;
    if (id === this.#proven) return;
    this.#proven = id;
    this.proof.replaceChildren(proven ? receiptView(proven.receipt, receiptUrl(id)) : el("p.hint", {}, NO_RECEIPT));
  }
}

class Entry {
  #shown = null;

  constructor() {
    this.title = el("span.title");
    this.word = el("span.outcome");
    this.sentence = el("p.sentence");
    this.story = el("ol.story");
    this.receipt = el("div");
    this.node = el(
      "li.entry",
      {},
      el("details", {}, el("summary", {}, this.title, this.word, this.sentence), this.story, this.receipt),
    );
  }

  update(move) {
    if (move === this.#shown) return;
    this.#shown = move;
    const { mode, source, target, session, started_at_s: startedAt } = move;
    const way = { park: `park from ${source}`, resume: `resume on ${target}` }[mode] ?? `${source} → ${target}`;
    say(this.title, `${session}: ${way}`);
    this.title.title = `${clock(startedAt)} · ${mode}, ${move.transport} · ${move.id}`;
    say(this.word, outcomeWord(move));
    this.node.dataset.outcome = move.outcome ?? "running";
    say(this.sentence, move.error ? sentence(move.error.sentence) : "");
    this.sentence.hidden = !move.error;
    this.story.replaceChildren(...move.story.map((line) => el("li", {}, line)));
    this.receipt.replaceChildren(...(move.receipt ? [receiptView(move.receipt, receiptUrl(move.receipt.id))] : []));
  }
}

function outcomeWord(move) {
  if (move.error) return move.error.code;
  if (move.receipt && move.outcome === "done") return `${ms(move.receipt.pause_s * 1000)} pause`;
  return move.outcome ?? move.phase;
}
