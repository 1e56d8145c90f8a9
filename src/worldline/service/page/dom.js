// Elements by name. Data reaches the document as text or attributes only, never as markup.

const SVG = new Set(["svg", "path", "line", "rect", "circle", "text", "title"]);

/**
 * `el("button.quiet", { type: "button", onclick: act }, "Park")`. Functions become listeners, `true` a bare attribute,
 * `null` and `false` nothing; `data` sets data attributes.
 */
export function el(name, props = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const node = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(key.replace(/^on/, ""), value);
    else if (key === "data") Object.assign(node.dataset, value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets text only where it differs, so that a selection or a screen reader isn't disturbed by an equal value. */
export function say(node, text) {
  const value = String(text);
  if (node.textContent !== value) node.textContent = value;
}

/** Brings `parent`'s children to `nodes`, in order, without taking out those that stay: focus and drags survive. */
export function place(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  nodes.forEach((node, index) => {
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] ?? null);
  });
}

/** One view for each key, made once and kept while its key is listed. */
export class Keyed {
  #views = new Map();

  constructor(make) {
    this.make = make;
  }

  /** The views of `keys`, in order; those of other keys are dropped, after their `close()` where they have one. */
  of(keys) {
    const wanted = new Set(keys);
    for (const [key, view] of this.#views) {
      if (wanted.has(key)) continue;
      view.close?.();
      this.#views.delete(key);
    }
    return keys.map((key) => {
      if (!this.#views.has(key)) this.#views.set(key, this.make(key));
      return this.#views.get(key);
    });
  }
}
