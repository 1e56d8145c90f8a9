// What the page knows of the fleet: the controller's hosts, sessions and moves by id, in its own JSON shapes.

const MOVES_SHOWN_MAX = 50;

export class State extends EventTarget {
  hosts = new Map();
  sessions = new Map();
  moves = new Map();
  operations = new Map();
  fleetTrouble = null; // the error of the last verb on a host or an operation
  troubles = new Map(); // session id -> the error of its last verb, until the next one
  connected = false;
  selected = null;

  /** Everything anew, as after a reconnect. */
  replace(snapshot) {
    this.hosts = byId(snapshot.hosts);
    this.sessions = byId(snapshot.sessions);
    this.moves = byId(snapshot.moves);
    this.#changed();
  }

  setHost(host) {
    this.hosts.set(host.id, host);
    this.#changed();
  }

  setSession(session) {
    this.sessions.set(session.id, session);
    this.#changed();
  }

  setMove(move) {
    this.moves.set(move.id, move);
    this.#changed();
  }

  setOperation(operation) {
    this.operations.set(operation.id, operation);
    this.#changed();
  }

  setFleetTrouble(error) {
    this.fleetTrouble = error;
    this.#changed();
  }

  setConnected(connected) {
    this.connected = connected;
    this.#changed();
  }

  setTrouble(session, error) {
    if (error) this.troubles.set(session, error);
    else this.troubles.delete(session);
    this.#changed();
  }

  select(id) {
    this.selected = id;
    history.replaceState(null, "", `#${encodeURIComponent(id)}`);
    this.#changed();
  }

  /** The session in focus: the chosen one while it is open, else the newest that a person can play. */
  get focus() {
    const chosen = this.sessions.get(this.selected);
    if (chosen && chosen.status !== "closed") return chosen;
    return (
      this.players()
        .filter((session) => session.status !== "lost")
        .at(-1) ??
      this.players().at(-1) ??
      null
    );
  }

  hostList() {
    return [...this.hosts.values()].sort((a, b) => a.id.localeCompare(b.id));
  }

  /** Oldest first. */
  operationList() {
    return [...this.operations.values()].sort((a, b) => a.started_at_s - b.started_at_s);
  }

  /** Sessions that a person opened: all but twins and closed ones. */
  players() {
    return [...this.sessions.values()].filter((session) => session.status !== "closed" && !session.twin_of);
  }

  /** What lives on a host: the focus first, then what a person can play, then twins. */
  on(host) {
    const { focus } = this;
    const rank = (session) =>
      session === focus ? 0 : session.twin_of === null ? 1 : session.twin_of === focus?.id ? 2 : 3;
    const here = [...this.sessions.values()].filter((session) => session.host === host && isLive(session));
    return here.sort((a, b) => rank(a) - rank(b));
  }

  shelved() {
    return [...this.sessions.values()].filter((session) => session.status === "parked" || session.status === "lost");
  }

  /** Newest first. */
  movesOf(session) {
    return this.recentMoves().filter((move) => move.session === session);
  }

  recentMoves() {
    return [...this.moves.values()].sort((a, b) => b.started_at_s - a.started_at_s).slice(0, MOVES_SHOWN_MAX);
  }

  /** The session as its host describes it; null while it has none. */
  facts(session) {
    const host = this.hosts.get(session.host);
    return host?.facts?.sessions.find((facts) => facts.session === session.id) ?? null;
  }

  /** "A" for the first of the fleet's plans, "B" for the next: equal letters, equal plans. */
  planLetter(digest) {
    const digests = [
      ...new Set(
        this.hostList()
          .map((host) => host.plan_digest)
          .filter(Boolean),
      ),
    ];
    const index = digests.indexOf(digest);
    return index < 0 ? "?" : String.fromCharCode(65 + (index % 26));
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

export function isLive(session) {
  return session.status === "running" || session.status === "moving";
}

function byId(list) {
  return new Map(list.map((item) => [item.id, item]));
}
