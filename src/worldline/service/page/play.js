// One session as it is played: a connection that comes back by itself, actions by number, blocks in order.
//
// Invariant: what is shown is block n after block n-1, never a gap and never a repeat; `log` keeps what was shown, for
// tests and for the curious.

import { decode, encodeAct, playUrl } from "./protocol.js";
import { Pace } from "./pace.js";
import { Screen } from "./screen.js";
import { Periods } from "./sparkline.js";
import { TextScreen } from "./textscreen.js";

const LOG_MAX = 5000;
const RETRY_MS_FIRST = 250;
const RETRY_MS_MAX = 4000;

/** The blocks that were shown, newest last: {session, block, number, frame, epoch, at}. Read by tests. */
export const log = [];

export class Player extends EventTarget {
  session;
  readout;
  connected = false;
  block = null;
  frame = null;
  number = null;
  epoch = null;
  gapMs = null;
  gap = null;
  twin = null;
  trouble = null;
  periods = new Periods();
  screen;
  pace;
  #socket = null;
  #retryMs = RETRY_MS_FIRST;
  #retry = 0;
  #shownAt = null;
  #wanted = false;

  constructor(session) {
    super();
    this.session = session.id;
    this.readout = session.readout;
    this.actions = session.actions;
    this.screen = session.readout.kind === "text" ? new TextScreen() : new Screen();
    this.pace = new Pace(Math.max(session.actions.indexOf("stay"), session.readout.kind === "text" ? -1 : 0));
  }

  /** Connects, or lets go and keeps the last picture. */
  setWanted(wanted) {
    if (wanted === this.#wanted) return;
    this.#wanted = wanted;
    clearTimeout(this.#retry);
    if (wanted) this.#connect();
    else this.#socket?.close();
  }

  /** False for a name that this world doesn't know. */
  press(name) {
    const action = this.actions.indexOf(name);
    if (action < 0) return false;
    this.pace.press(action);
    this.pump();
    return true;
  }

  release(name) {
    const action = this.actions.indexOf(name);
    if (action >= 0) this.pace.release(action);
  }

  setPaused(paused) {
    this.pace.paused = paused;
    this.pump();
  }

  setRunsOn(runsOn) {
    this.pace.runsOn = runsOn;
    this.pump();
  }

  /** Sends what may be sent now. */
  pump() {
    if (!this.connected) return;
    for (let sent = this.pace.next(); sent; sent = this.pace.next()) this.#send(sent);
  }

  close() {
    this.setWanted(false);
  }

  #send({ number, action }) {
    this.#socket.send(encodeAct(number, action));
  }

  #connect() {
    const socket = new WebSocket(playUrl(this.session, this.block));
    socket.binaryType = "arraybuffer";
    socket.onmessage = (event) => this.#hear(decode(event.data));
    socket.onclose = (event) => this.#lost(event);
    this.#socket = socket;
  }

  #lost(event) {
    this.connected = false;
    this.#tell("change");
    if (!this.#wanted) return;
    if (event.code === 1008 || event.code >= 4000) this.trouble ??= { code: "CLOSED", sentence: event.reason };
    this.#retry = setTimeout(() => this.#connect(), this.#retryMs);
    this.#retryMs = Math.min(2 * this.#retryMs, RETRY_MS_MAX);
  }

  #hear(message) {
    switch (message.kind) {
      case "ready":
        return this.#ready(message);
      case "block":
        return this.#shown(message);
      case "gap":
        return this.#moved(message);
      case "twin":
        this.twin = message;
        return this.#tell("change");
      case "error":
        this.trouble = message;
        return this.#tell("trouble");
    }
  }

  #ready({ number }) {
    this.connected = true;
    this.#retryMs = RETRY_MS_FIRST;
    this.trouble = null;
    for (const sent of this.pace.resume(number)) this.#send(sent);
    this.pump();
    this.#tell("change");
  }

  #shown(message) {
    if (this.block !== null && message.block <= this.block) return; // sent again after a reconnect
    const now = performance.now();
    if (this.#shownAt !== null) this.periods.add(now - this.#shownAt, message.block);
    this.#shownAt = now;
    ({ block: this.block, frame: this.frame, number: this.number, epoch: this.epoch } = message);
    this.frame += message.frames - 1;
    this.screen.show(message.pictures ?? message.payload, this.periods.medianMs);
    log.push({ session: this.session, block: this.block, number: this.number, frame: this.frame, epoch: this.epoch, at: now });
    if (log.length > LOG_MAX) log.shift();
    this.pace.answered(message.number);
    this.pump();
    this.#tell("change");
  }

  #moved(message) {
    this.gap = message;
    this.#tell("change");
  }

  #tell(type) {
    this.dispatchEvent(new Event(type));
  }
}
