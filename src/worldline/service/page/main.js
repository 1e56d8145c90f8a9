// The page, wired: what the controller tells becomes state, state becomes what is seen, keys become actions.

import { follow } from "./api.js";
import { Choices } from "./choices.js";
import { el, place, say } from "./dom.js";
import { plural } from "./format.js";
import { listen } from "./keys.js";
import { Lanes } from "./lanes.js";
import { Moves } from "./moves.js";
import { Players } from "./players.js";
import { log } from "./play.js";
import { Stage } from "./stage.js";
import { StartDialog } from "./start.js";
import { State } from "./state.js";
import { Verbs } from "./verbs.js";

const state = new State();
const choices = new Choices();
const verbs = new Verbs(state, choices);
const players = new Players(state, schedule);
const press = (name) => {
  if (state.focus?.asleep) verbs.wake(state.focus);
  players.focused?.press(name);
};
const release = (name) => players.each((player) => player.release(name));
const context = { state, players, choices, verbs, press, release };

const lanes = new Lanes(context);
const stage = new Stage(context);
const moves = new Moves(context);
const start = new StartDialog(context);
const welcome = el(
  "section.welcome",
  {},
  el("h2", {}, "Walk through a world while it moves between machines"),
  el(
    "p",
    {},
    "Start a world and walk with the arrow keys. Then drag its tile to another host: " +
      "the picture goes on, and a receipt proves that not a byte changed.",
  ),
  el("button.primary", { type: "button", onclick: () => start.show() }, "Start a world"),
);
const main = document.getElementById("main");
const center = el("div.center", {}, lanes.node, welcome, stage.node);
main.append(center, moves.node, start.node);

let scheduled = false;

/** Draws at most once for each picture of the screen, and also where the tab is hidden, if late. */
function schedule() {
  if (scheduled) return;
  scheduled = true;
  const draw = () => {
    if (!scheduled) return;
    scheduled = false;
    render();
  };
  requestAnimationFrame(draw);
  setTimeout(draw, 250);
}

function render() {
  players.update();
  welcome.hidden = !state.connected || state.focus !== null;
  document.body.classList.toggle("offline", !state.connected);
  document.getElementById("start").hidden = !welcome.hidden;
  say(document.getElementById("summary"), summary());
  lanes.update();
  stage.update();
  moves.update();
}

function summary() {
  if (!state.connected) return "connecting …";
  const alive = state.hostList().filter((host) => host.alive).length;
  return `${plural(alive, "host")} · ${plural(state.players().length, "world")} · ${plural(state.moves.size, "move")}`;
}

state.addEventListener("change", schedule);
document.getElementById("start").addEventListener("click", () => start.show());
document.addEventListener("visibilitychange", () => players.setHidden(document.hidden));
window.addEventListener("resize", schedule);
listen(window, press, release);
if (location.hash) state.select(decodeURIComponent(location.hash.slice(1)));
follow(state);

/** For tests: the blocks that were shown, and what the page knows. */
window.worldline = { log, state, players };
