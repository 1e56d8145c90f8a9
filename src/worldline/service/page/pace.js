// Which action goes out next, and under which number. Pure: no clock, no socket.
//
// Invariants: numbers are 1, 2, 3 ... without a gap; at most AHEAD_MAX actions are unanswered; what was pressed is sent
// in the order in which it was pressed, also after a freeze.

export const AHEAD_MAX = 2;
const TAPS_MAX = 64;

export class Pace {
  /** Goes on by itself while nothing is pressed. */
  runsOn = false;
  paused = false;
  /** Another connection drives this session. */
  watches = false;
  /** The twin is too far behind to be looked at beside it. */
  waits = false;
  #idle;
  #number = 0; // the last one given
  #unanswered = []; // [{number, action}]
  #taps = [];
  #held = [];

  /** `idle` is the action of a block for which nothing is pressed. */
  constructor(idle) {
    this.#idle = idle;
  }

  get unanswered() {
    return this.#unanswered.length;
  }

  get waiting() {
    return this.#taps.length;
  }

  press(action) {
    this.#held = [...this.#held.filter((other) => other !== action), action];
    if (this.#taps.length < TAPS_MAX) this.#taps.push(action);
  }

  release(action) {
    this.#held = this.#held.filter((other) => other !== action);
  }

  /** A single action, as if a key had been tapped. */
  tap(action) {
    this.press(action);
    this.release(action);
  }

  /** The next action to send, `{number, action}`, or null. Call until it gives null. */
  next() {
    if (this.paused || this.watches || this.waits || this.#unanswered.length >= AHEAD_MAX) return null;
    const action = this.#taps.shift() ?? this.#held.at(-1) ?? (this.runsOn ? this.#idle : null);
    if (action === null) return null;
    const sent = { number: ++this.#number, action };
    this.#unanswered.push(sent);
    return sent;
  }

  /** A block that applied action `number` has arrived. */
  answered(number) {
    this.#unanswered = this.#unanswered.filter((sent) => sent.number > number);
    this.#number = Math.max(this.#number, number); // another player's action counts as given
  }

  /**
   * The gateway goes on with action number `expected`: after a new connection, or when another player drove. Returns
   * those to send again, numbered anew where others took their numbers meanwhile. `refused` is the number of one that
   * was not taken, since another player's action had that number. Nothing is sent again while another player drives.
   */
  resume(expected, refused = null) {
    const isDue = (sent) => sent.number >= expected;
    const taken = this.#unanswered.filter((sent) => !isDue(sent) && sent.number !== refused);
    const again = [
      ...this.#unanswered.filter(isDue),
      ...this.#unanswered.filter((sent) => !isDue(sent) && sent.number === refused),
    ];
    this.#number = expected - 1;
    const kept = this.watches ? [] : again.map(({ action }) => ({ number: ++this.#number, action }));
    this.#unanswered = [...taken, ...kept];
    return kept;
  }
}
