// The readout of a text world: text that grows. UTF-8 may break anywhere between two blocks.

const SHOWN_MAX = 20_000;

export class TextScreen {
  #elements = new Set();
  #decoder = new TextDecoder();
  #text = "";

  add(element) {
    this.#elements.add(element);
    element.textContent = this.#text;
    element.scrollTop = element.scrollHeight;
  }

  remove(element) {
    this.#elements.delete(element);
  }

  show(payload) {
    const more = this.#decoder.decode(payload, { stream: true });
    this.#text = (this.#text + more).slice(-SHOWN_MAX);
    for (const element of this.#elements) {
      element.textContent = this.#text;
      element.scrollTop = element.scrollHeight;
    }
  }
}
