// Quantities as people read them.

/** 1670123520 -> "1.67 GB", with decimal prefixes as everywhere in Worldline. */
export function bytes(count) {
  for (const [size, unit] of [
    [1e12, "TB"],
    [1e9, "GB"],
    [1e6, "MB"],
    [1e3, "kB"],
  ]) {
    if (count >= size) return `${three(count / size)} ${unit}`;
  }
  return `${count} B`;
}

/** 18.84 -> "18.8 ms", 1234 -> "1.23 s". */
export function ms(value) {
  return value >= 1000 ? `${three(value / 1000)} s` : `${three(value)} ms`;
}

/** Grouped digits: 1234567 -> "1 234 567", with thin spaces. */
export function count(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/** As a sentence, with a capital and a full stop. */
export function sentence(text) {
  const whole = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

/** A clock time of the machine the page is on. */
export function clock(atSeconds) {
  return new Date(atSeconds * 1000).toLocaleTimeString([], { hour12: false });
}

/** The first signs of a digest. */
export function brief(digest, signs = 8) {
  return digest ? digest.slice(0, signs) : "–";
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

function three(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
