// The players of all sessions that can be shown, kept in step with the sessions.

import { Player } from "./play.js";
import { isLive } from "./state.js";

const PLAYERS_MAX = 24;
const TWIN_BEHIND_MAX = 4;

export class Players {
  #players = new Map();
  #marked = new Set();
  #hidden = document.hidden;
  /** Sessions that go on by themselves: those started here, until told otherwise. To look at one is not to play it. */
  #runsOn = new Set();

  constructor(state, changed) {
    this.state = state;
    this.changed = changed;
  }

  get(session) {
    return this.#players.get(session) ?? null;
  }

  get focused() {
    return this.get(this.state.focus?.id);
  }

  each(act) {
    for (const player of this.#players.values()) act(player);
  }

  runsOn(session) {
    return this.#runsOn.has(session);
  }

  setRunsOn(session, runsOn) {
    if (runsOn) this.#runsOn.add(session);
    else this.#runsOn.delete(session);
    this.update();
  }

  /** Nothing is asked for while nobody looks. */
  setHidden(hidden) {
    this.#hidden = hidden;
    this.update();
  }

  update() {
    const { sessions, focus } = this.state;
    for (const [id, player] of this.#players) {
      const session = sessions.get(id);
      if (session && session.status !== "closed") continue;
      player.close();
      this.#players.delete(id);
    }
    for (const session of sessions.values()) {
      if (!isLive(session) || this.#players.has(session.id) || this.#players.size >= PLAYERS_MAX) continue;
      this.#add(session);
    }
    for (const [id, player] of this.#players) {
      player.setWanted(isLive(sessions.get(id)));
      player.setRunsOn(this.runsOn(id) && id === focus?.id);
      player.setPaused(this.#hidden || sessions.get(id).twin_of !== null);
      player.setWaits(this.#isAhead(player, this.get(sessions.get(id).twin)));
    }
    for (const move of this.state.moves.values()) if (move.outcome && !this.#marked.has(move.id)) this.#mark(move);
  }

  /** Notes in the block periods that a move was refused here; one that was made is noted with its gap. */
  #mark(move) {
    this.#marked.add(move.id);
    if (["refused", "returned"].includes(move.outcome))
      this.get(move.session)?.periods.mark(null, "refused", move.error?.code ?? "refused");
  }

  /** Whether a session has left its twin behind, which runs on the same cores; a twin that is gone holds nobody up. */
  #isAhead(player, twin) {
    return twin !== null && twin.connected && player.block - twin.block > TWIN_BEHIND_MAX;
  }

  #add(session) {
    const player = new Player(session, this.state.facts(session)?.block ?? 0);
    player.addEventListener("change", this.changed);
    this.#players.set(session.id, player);
  }
}
