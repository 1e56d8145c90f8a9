// Block periods as a line of the last minute of play, with moves marked where they happened.

const POINTS_MAX = 90;
const FLOOR_MS = 40;

/** The last periods of one session, and what happened in them. */
export class Periods {
  points = []; // {ms, block, mark: null | {kind: "moved" | "refused", label}}
  #coming = null;

  add(ms, block) {
    const mark = this.#coming && block >= this.#coming.block ? this.#coming.mark : null;
    if (mark) this.#coming = null;
    this.points.push({ ms, block, mark });
    if (this.points.length > POINTS_MAX) this.points.shift();
  }

  /** Notes something in `block`, which may be still to come; null: in the newest one. */
  mark(block, kind, label) {
    const mark = { kind, label };
    const last = this.points.at(-1);
    if (block !== null && block > (last?.block ?? 0)) this.#coming = { block, mark };
    else if (last) (this.points.find((point) => point.block === block) ?? last).mark = mark;
  }

  get medianMs() {
    const recent = this.points
      .slice(-30)
      .map((point) => point.ms)
      .sort((a, b) => a - b);
    return recent.length ? recent[recent.length >> 1] : 200;
  }
}

/** Draws `periods` into a canvas of any size, in the document's colours. */
export function drawSparkline(canvas, periods) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = window.devicePixelRatio || 1;
  if (!width || !height) return;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const points = periods.points;
  if (points.length < 2) return;
  const style = getComputedStyle(canvas);
  const colour = (name) => style.getPropertyValue(name).trim();
  const top = Math.max(FLOOR_MS, ...points.map((point) => point.ms)) * 1.15;
  const x = (index) => width - 6 - (points.length - 1 - index) * ((width - 12) / (POINTS_MAX - 1));
  const y = (ms) => height - 3 - (ms / top) * (height - 16);
  drawMedian(pen, width, y(periods.medianMs), periods.medianMs, colour);
  pen.beginPath();
  points.forEach((point, index) => pen.lineTo(x(index), y(point.ms)));
  pen.strokeStyle = colour("--accent");
  pen.lineWidth = 1.5;
  pen.lineJoin = "round";
  pen.stroke();
  let free = 0;
  points.forEach((point, index) => {
    if (point.mark) free = drawMark(pen, { x: x(index), y: y(point.ms), width, height, free }, point.mark, colour);
  });
}

function drawMedian(pen, width, at, medianMs, colour) {
  pen.beginPath();
  pen.setLineDash([2, 3]);
  pen.moveTo(0, at);
  pen.lineTo(width, at);
  pen.strokeStyle = colour("--soft");
  pen.lineWidth = 1;
  pen.stroke();
  pen.setLineDash([]);
  pen.fillStyle = colour("--soft");
  pen.font = font();
  pen.fillText(`${Math.round(medianMs)} ms a block`, 6, at + 12);
}

/** Draws one mark and returns where its label ends; a label that would cover the one before goes below it. */
function drawMark(pen, { x, y, width, height, free }, mark, colour) {
  pen.strokeStyle = pen.fillStyle = colour(mark.kind === "moved" ? "--good" : "--bad");
  pen.lineWidth = 1;
  pen.font = font();
  const room = pen.measureText(mark.label).width;
  const left = Math.min(Math.max(2, x - room / 2), width - room - 2);
  const baseline = left < free + 6 ? height - 4 : 9;
  pen.beginPath();
  pen.moveTo(x + 0.5, 12);
  pen.lineTo(x + 0.5, height - (baseline === 9 ? 0 : 14));
  pen.stroke();
  pen.beginPath();
  pen.arc(x + 0.5, y, 3, 0, 2 * Math.PI);
  pen.fill();
  pen.fillText(mark.label, left, baseline);
  return baseline === 9 ? left + room : free;
}

function font() {
  return `10px ${getComputedStyle(document.body).fontFamily}`;
}
