// From keys and buttons to the names of actions.

const ACTION_OF_KEY = {
  ArrowUp: "forward",
  ArrowDown: "back",
  ArrowLeft: "left",
  ArrowRight: "right",
  w: "forward",
  s: "back",
  a: "left",
  d: "right",
};

/** Elements that need the arrow keys themselves. */
const OWN_KEYS = "input:not([type=checkbox]), select, textarea, dialog, [role=menu]";

export function actionOfKey(key) {
  return ACTION_OF_KEY[key] ?? ACTION_OF_KEY[key.toLowerCase()] ?? null;
}

/**
 * Calls `press(name)` and `release(name)` for the walking keys, wherever on the page they are pressed but in a field.
 * A key held while the window loses focus is released.
 */
export function listen(target, press, release) {
  const down = new Map();
  target.addEventListener("keydown", (event) => {
    const name = actionOfKey(event.key);
    if (!name || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(OWN_KEYS)) return;
    event.preventDefault();
    if (event.repeat || down.has(event.code)) return;
    down.set(event.code, name);
    press(name);
  });
  target.addEventListener("keyup", (event) => {
    const name = down.get(event.code);
    down.delete(event.code);
    if (name) release(name);
  });
  target.addEventListener("blur", () => {
    for (const name of down.values()) release(name);
    down.clear();
  });
}

/** A button that holds its action while it is pressed, for touch and mouse; Enter and Space tap it once. */
export function holdButton(button, name, press, release) {
  const end = () => {
    if (button.dataset.held) release(name);
    delete button.dataset.held;
  };
  button.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    button.setPointerCapture(event.pointerId);
    button.dataset.held = "yes";
    press(name);
  });
  for (const type of ["pointerup", "pointercancel", "lostpointercapture"]) button.addEventListener(type, end);
  button.addEventListener("click", (event) => {
    if (event.detail !== 0) return; // a pointer did it already
    press(name);
    release(name);
  });
  button.addEventListener("contextmenu", (event) => event.preventDefault());
}
