// The gateway's token, where it asks for one: asked of the person once, kept for this tab and no longer.

import { el, say } from "./dom.js";

const KEPT = "worldline.token";
let asking = null;

/** What goes along with every request; nothing where no token was asked for. */
export function credentials() {
  const token = sessionStorage.getItem(KEPT);
  return token === null ? {} : { Authorization: `Bearer ${token}` };
}

/** Resolves when the person has given a token; `refused` is the one that was not taken, if any. */
export function askToken(refused) {
  asking ??= new Promise((resolve) => show(resolve, refused !== undefined)).finally(() => (asking = null));
  return asking;
}

function show(resolve, again) {
  const input = el("input", { type: "password", name: "token", autocomplete: "off", required: true });
  const error = el("p.error", { role: "alert", hidden: !again });
  say(error, "The gateway does not take this token.");
  const take = () => {
    if (!input.value.trim()) return;
    sessionStorage.setItem(KEPT, input.value.trim());
    node.close();
    node.remove();
    resolve();
  };
  const node = el(
    "dialog.start.token",
    { "aria-label": "Token", oncancel: (event) => event.preventDefault() },
    el("h2", {}, "This gateway asks for its token"),
    el("p.hint", {}, "It is the line in the file with which the fleet was started. This tab keeps it until it is closed."),
    el("label", {}, "Token", input),
    error,
    el("button.primary", { type: "button", onclick: take }, "Go on"),
  );
  input.addEventListener("keydown", (event) => event.key === "Enter" && take());
  document.body.append(node);
  node.showModal();
}
