// One session as it is played: a connection that comes back by itself, actions by number, blocks in order.
//
// Invariant: a block is shown after every earlier one and never again; `log` keeps what was shown.

import { decode, encodeAck, encodeAction, playUrl } from "./protocol.js";
import { Pace } from "./pace.js";
import { Screen } from "./screen.js";
import { Periods } from "./sparkline.js";
import { TextScreen } from "./textscreen.js";

const FRAMES_PER_S_MAX = 24;
/** Faster than this nobody can steer, and two cores have three hosts to serve. */
const LOG_MAX = 5000;
const RETRY_MS_FIRST = 250;
const RETRY_MS_MAX = 4000;

/** The blocks that were shown, newest last: {session, block, number, frame, epoch, host, at}. Read by tests. */
export const log = [];

export class Player extends EventTarget {
  connected = false;
  block = null;
  frame = null;
  epoch = null;
  /** What the last change of the owner cost: {ms, block, source, target}. */
  gap = null;
  /** How the twin compares: {equal, blocks, differs}. */
  twin = null;
  /** What went wrong last, until the next block: {code, sentence}. */
  trouble = null;
  /** Blocks, from and to, whose pictures were lost on the way; the world has them. */
  missed = [];
  periods = new Periods();
  #wanted = false;
  #socket = null;
  #attempt = null; // to connect: a later one puts an earlier one, which still waits for its ticket, out of force
  #retry = 0;
  #retryMs = RETRY_MS_FIRST;
  #shownAt = null;
  #pumping = 0;
  #nextAt = 0;
  #periodMs = 0;

  /** `block`: the session's last one as far as it is known, so that its picture can be asked for. */
  constructor(session, block) {
    super();
    const text = session.readout.kind === "text";
    this.session = session.id;
    this.readout = session.readout;
    this.actions = session.actions;
    this.screen = text ? new TextScreen() : new Screen();
    this.pace = new Pace(Math.max(session.actions.indexOf("stay"), text ? -1 : 0));
    this.#periodMs = (1000 * session.readout.frames_per_block) / FRAMES_PER_S_MAX;
    this.before = Math.max(0, block - (text ? 256 : 1)); // a picture is one block, a text is many
  }

  /** Connects, or lets go and keeps the last picture. */
  setWanted(wanted) {
    if (wanted === this.#wanted) return;
    this.#wanted = wanted;
    clearTimeout(this.#retry);
    if (wanted) this.#connect();
    else this.#socket?.close();
  }

  close() {
    this.setWanted(false);
  }

  /** Nothing happens for a name that this world doesn't know. */
  press(name) {
    const action = this.actions.indexOf(name);
    if (action < 0) return;
    this.pace.press(action);
    if (this.pace.watches) this.#takeOver();
    this.pump();
  }

  release(name) {
    this.pace.release(this.actions.indexOf(name));
  }

  setPaused(paused) {
    this.pace.paused = paused;
    this.pump();
  }

  setRunsOn(runsOn) {
    this.pace.runsOn = runsOn;
    this.pump();
  }

  setWaits(waits) {
    this.pace.waits = waits;
    this.pump();
  }

  /** Sends what may be sent now, and comes back when more may. */
  pump() {
    clearTimeout(this.#pumping);
    for (let now = performance.now(); this.connected;) {
      if (now < this.#nextAt) return void (this.#pumping = setTimeout(() => this.pump(), this.#nextAt - now));
      const sent = this.pace.next();
      if (!sent) return;
      this.#send(sent);
      this.#nextAt = Math.max(now, this.#nextAt) + this.#periodMs;
    }
  }

  #send({ number, action }) {
    this.#tell(encodeAction(number, action));
  }

  /** Between a socket's end and the word of it nothing is sent: what is unanswered goes again, by number. */
  #tell(data) {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(data);
  }

  async #connect() {
    const attempt = (this.#attempt = {});
    this.connected = false;
    this.#socket = null; // an earlier one is not listened to any more
    let socket;
    try {
      const url = await playUrl(this.session, this.block ?? this.before);
      if (attempt !== this.#attempt || !this.#wanted) return;
      socket = new WebSocket(url);
    } catch {
      if (attempt === this.#attempt) this.#lost();
      return;
    }
    socket.binaryType = "arraybuffer";
    socket.onmessage = (event) => socket === this.#socket && this.#hear(decode(event.data));
    socket.onclose = () => socket === this.#socket && this.#lost();
    this.#socket = socket;
  }

  #lost() {
    this.connected = false;
    this.#socket = null;
    this.#changed();
    if (!this.#wanted) return;
    this.#retry = setTimeout(() => this.#connect(), this.#retryMs);
    this.#retryMs = Math.min(2 * this.#retryMs, RETRY_MS_MAX);
  }

  /** The newest connection drives, so this one is made anew. */
  #takeOver() {
    this.pace.watches = false;
    this.#socket?.close();
    this.connected = false;
    this.#connect();
  }

  #hear(message) {
    switch (message?.kind) {
      case "ready":
        this.connected = true;
        this.#retryMs = RETRY_MS_FIRST;
        this.#goOn(message.expected);
        break;
      case "block":
        this.#shown(message);
        break;
      case "missed":
        if (this.block !== null && message.last > this.block) this.missed.push([message.first, message.last]);
        this.pace.answered(message.last); // those actions were applied: no block will come to say so
        this.pump();
        break;
      case "gap":
        this.gap = message;
        this.periods.mark(message.block, "moved", `→ ${message.target} ${Math.round(message.ms)} ms`);
        break;
      case "twin":
        this.twin = message;
        break;
      case "drive":
        this.pace.watches = !message.driving;
        break;
      case "error":
        if (message.code !== "ACTION_GAP") this.trouble = message; // that one is mended by going on, here
        if (message.facts?.expected !== undefined) this.#goOn(message.facts.expected, message.facts.number);
        break;
    }
    this.#changed();
  }

  #goOn(expected, refused = null) {
    for (const sent of this.pace.resume(expected, refused)) this.#send(sent);
    this.pump();
  }

  #shown(message) {
    this.#tell(encodeAck(message.block));
    if (this.block !== null && message.block <= this.block) return; // sent again after a reconnect
    const now = performance.now();
    if (this.#shownAt !== null) this.periods.add(now - this.#shownAt, message.block);
    this.#shownAt = now;
    this.block = message.block;
    this.frame = message.frame + message.frames - 1;
    this.epoch = message.epoch;
    this.trouble = null;
    if (message.shown) this.screen.show(message.shown, this.periods.medianMs);
    const { session, block, frame, epoch } = this;
    log.push({ session, block, number: message.number, frame, epoch, host: message.host, at: now });
    if (log.length > LOG_MAX) log.shift();
    this.pace.answered(message.number);
    this.pump();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}
