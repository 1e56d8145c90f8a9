// Draws the frames of blocks, spread over the time a block takes. The last frame stays until the next one is there:
// nothing ever clears a canvas.

const SPREAD_MS_MAX = 1000;

export class Screen {
  #canvases = new Set();
  #last = null;
  #queue = [];
  #decoding = Promise.resolve();
  #timer = 0;

  /** Draws on `canvas` too from now on, beginning with the frame that is shown. */
  add(canvas) {
    this.#canvases.add(canvas);
    if (this.#last) draw(canvas, this.#last);
  }

  remove(canvas) {
    this.#canvases.delete(canvas);
  }

  /** `jpegs`: the frames of one block, in order; `periodMs`: how long a block takes now. */
  show(jpegs, periodMs) {
    const decoded = Promise.all(jpegs.map((jpeg) => createImageBitmap(new Blob([jpeg], { type: "image/jpeg" }))));
    this.#decoding = this.#decoding.then(() => decoded).then((bitmaps) => this.#enqueue(bitmaps, periodMs));
    this.#decoding = this.#decoding.catch(() => {}); // an unreadable picture costs this picture only
  }

  #enqueue(bitmaps, periodMs) {
    const spacing = Math.min(periodMs, SPREAD_MS_MAX) / bitmaps.length;
    while (this.#queue.length >= bitmaps.length) this.#queue.shift().bitmap.close(); // the newest block wins
    for (const bitmap of bitmaps) this.#queue.push({ bitmap, spacing });
    if (!this.#timer) this.#tick();
  }

  #tick() {
    this.#timer = 0;
    const next = this.#queue.shift();
    if (!next) return;
    this.#last?.close();
    this.#last = next.bitmap;
    for (const canvas of this.#canvases) draw(canvas, next.bitmap);
    this.#timer = setTimeout(() => this.#tick(), next.spacing);
  }
}

function draw(canvas, bitmap) {
  if (canvas.width !== bitmap.width || canvas.height !== bitmap.height) {
    canvas.width = bitmap.width; // clears, so only where the size really changes
    canvas.height = bitmap.height;
  }
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
}
