// Operations over many sessions, as long as they run and a while after: how far, how long still, and a way to stop.

import { el, Keyed, place, say } from "./dom.js";
import { plural } from "./format.js";

const SHOWN_AFTER_S = 20;

export class Operations {
  constructor({ state, verbs }) {
    this.state = state;
    this.node = el("section.operations", { "aria-label": "Operations", "aria-live": "polite" });
    this.rows = new Keyed(() => new Row(verbs));
  }

  update() {
    const now = Date.now() / 1000;
    const shown = this.state
      .operationList()
      .filter((one) => one.outcome === null || now - one.ended_at_s < SHOWN_AFTER_S);
    const rows = this.rows.of(shown.map((one) => one.id));
    rows.forEach((row, index) => row.update(shown[index]));
    place(
      this.node,
      rows.map((row) => row.node),
    );
    this.node.hidden = shown.length === 0;
  }
}

class Row {
  constructor(verbs) {
    this.title = el("strong");
    this.words = el("span.hint");
    this.bar = el("progress", { max: 1 });
    this.cancel = el(
      "button.quiet",
      { type: "button", title: "The session under way ends as it would have; no further one is begun" },
      "Cancel",
    );
    this.cancel.addEventListener("click", () => verbs.cancel(this.id));
    this.node = el("div.operation", {}, this.title, this.bar, this.words, this.cancel);
  }

  update(operation) {
    this.id = operation.id;
    const { kind, host } = operation.request;
    const ended = operation.steps.filter((step) => step.state === "done" || step.state === "refused");
    const refused = ended.filter((step) => step.state === "refused");
    say(this.title, host ? `${kind} ${host}` : kind);
    this.bar.max = operation.steps.length || 1;
    this.bar.value = operation.outcome ? this.bar.max : ended.length;
    say(this.words, words(operation, ended.length, refused));
    this.node.title = [
      ...refused.map((step) => `${step.session}: ${step.sentence}`),
      ...operation.left.map((left) => `${left.session ?? `host ${left.host}`}: ${left.why}`),
    ].join("\n");
    this.node.dataset.outcome = operation.outcome ?? "running";
    this.cancel.hidden = operation.outcome !== null;
  }
}

function words(operation, ended, refused) {
  const parts = [`${ended} of ${plural(operation.steps.length, "session")}`];
  const again = operation.steps.find((step) => ["waiting", "running"].includes(step.state) && step.sentence);
  const going = operation.steps.some((step) => ["waiting", "running"].includes(step.state));
  if (again) parts.push(`${again.session} ${again.sentence}`);
  if (refused.length) parts.push(`${refused.length} refused: ${refused[0].sentence}`);
  if (refused.length && !going && !operation.outcome) parts.push("tried again soon");
  if (operation.left.length) parts.push(`${operation.left.length} left: ${operation.left[0].why}`);
  if (operation.outcome) parts.push(operation.outcome);
  else if (operation.eta_s !== null && going) parts.push(`${operation.eta_s.toFixed(0)} s left`);
  if (operation.emptied.length) parts.push(`emptied ${operation.emptied.join(", ")}`);
  return parts.join(" · ");
}
