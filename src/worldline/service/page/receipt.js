// What a move proved: both roots side by side.

import { save } from "./api.js";
import { el } from "./dom.js";
import { bytes, count, ms } from "./format.js";

/** The receipt as a definition list; `url` gives its JSON. */
export function receiptView(receipt, url) {
  const name = `receipt-${receipt.id.slice(0, 12)}.json`;
  const equal = receipt.source_root === receipt.target_root;
  const copied = receipt.bytes_moved === 0 ? "none, handed over" : bytes(receipt.bytes_moved);
  return el(
    "div.receipt",
    { data: { equal: equal ? "yes" : "no" } },
    el(
      "div.roots",
      {},
      root("source", receipt.source_root, side(receipt.source)),
      el("span.equal", { role: "img", "aria-label": equal ? "equal" : "different" }, equal ? "=" : "≠"),
      root("target", receipt.target_root, side(receipt.target)),
    ),
    el(
      "dl.facts",
      {},
      ...fact("went", `${side(receipt.source)} → ${side(receipt.target)}`),
      ...fact("at block", count(receipt.block)),
      ...fact("epoch", receipt.epoch),
      ...fact("how", receipt.transport === "image" ? receipt.mode : `${receipt.mode}, ${receipt.transport}`),
      ...fact("rounds", receipt.rounds),
      ...fact("state", bytes(receipt.state_bytes)),
      ...fact("sent", copied),
      ...fact("pause", ms(receipt.pause_s * 1000)),
      ...fact("took", ms(receipt.duration_s * 1000)),
      ...fact("leaves", count(receipt.leaf_count)),
      ...fact("signed by", receipt.signer ? `${receipt.made_by}, ${receipt.signer.slice(0, 8)}…` : "nobody"),
    ),
    el("a.download", { href: url, download: name, onclick: (event) => download(event, url, name) }, "Download the receipt"),
  );
}

/** By hand: a link would not show the gateway's token. */
function download(event, url, name) {
  event.preventDefault();
  save(url, name).catch((error) => (event.target.textContent = error.sentence));
}

/** A host's name as it is; an image's is long and has a dot, which no host's has. */
function side(name) {
  return name.includes(".") ? "image" : name;
}

function root(end, digest, place) {
  return el(
    "div.root",
    { title: digest },
    el("span.side", {}, `${end} ${place}`),
    el("code", {}, digest.slice(0, 16), el("wbr"), digest.slice(16, 32), "…"),
  );
}

function fact(term, value) {
  return [el("dt", {}, term), el("dd", {}, String(value))];
}
