// The six verbs as a person asks for them. What goes wrong is told where it was asked: at the session, in words.

import * as api from "./api.js";

export class Verbs {
  constructor(state, choices) {
    this.state = state;
    this.choices = choices;
  }

  /** Throws `ApiError`; the dialog that asked shows it. */
  async open(request) {
    const session = await api.open(request);
    this.state.setSession(session);
    this.state.select(session.id);
    return session;
  }

  async move(session, host) {
    const { mode, transport, fault } = this.choices.take();
    this.state.select(session.twin_of ?? session.id);
    await this.#try(session, async () => {
      const move = await api.move(session.id, { host, mode, transport, ...(fault ? { fault } : {}) });
      if (move?.id) this.state.setMove(move);
    });
  }

  park(session) {
    return this.#try(session, async () => this.state.setSession(await api.park(session.id)));
  }

  resume(session, host) {
    return this.#try(session, async () => this.state.setSession(await api.resume(session.id, { host })));
  }

  /** Brings back a session that was parked while its player was idle. */
  wake(session) {
    if (this.waking === session.id) return;
    this.waking = session.id;
    this.resume(session, null).finally(() => (this.waking = null));
  }

  drain(host) {
    return this.#tryFleet(async () => this.state.setOperation(await api.operate({ kind: "drain", host: host.id })));
  }

  uncordon(host) {
    return this.#tryFleet(async () => this.state.setHost(await api.cordon(host.id, "uncordon")));
  }

  cancel(operation) {
    return this.#tryFleet(async () => this.state.setOperation(await api.cancel(operation)));
  }

  close(session) {
    return this.#try(session, async () => this.state.setSession(await api.close(session.id)));
  }

  async #tryFleet(work) {
    this.state.setFleetTrouble(null);
    try {
      await work();
    } catch (error) {
      if (!(error instanceof api.ApiError)) throw error;
      this.state.setFleetTrouble(error);
    }
  }

  async #try(session, work) {
    this.state.setTrouble(session.id, null);
    try {
      await work();
    } catch (error) {
      if (!(error instanceof api.ApiError)) throw error;
      this.state.setTrouble(session.id, error);
    }
  }
}
