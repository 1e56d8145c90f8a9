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

  close(session) {
    return this.#try(session, async () => this.state.setSession(await api.close(session.id)));
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
