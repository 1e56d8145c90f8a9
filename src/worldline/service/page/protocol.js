// The messages of `WS /v1/sessions/{id}/play`, octet by octet as docs/http.md has them. Little-endian.

import { sessionPath, webSocketUrl } from "./api.js";

const VERSION = 1;
const BLOCK = 1;
const HEADER_BYTES = 64;
const ENCODINGS = ["none", "jpeg", "text"];
const ACTION = { kind: 1, bytes: 13 };
const ACK = { kind: 2, bytes: 9 };
/** Blocks under way without an ack; beyond it, pictures are left out and numbers are not. */
const WINDOW = 8;

/** `after`: also the blocks after this one, as far as they are kept. */
export async function playUrl(session, after) {
  return await webSocketUrl(`${sessionPath(session)}/play?window=${WINDOW}${after === null ? "" : `&after=${after}`}`);
}

export function encodeAction(number, action) {
  const view = new DataView(new ArrayBuffer(ACTION.bytes));
  view.setUint8(0, ACTION.kind);
  view.setBigUint64(1, BigInt(number), true);
  view.setInt32(9, action, true);
  return view.buffer;
}

export function encodeAck(block) {
  const view = new DataView(new ArrayBuffer(ACK.bytes));
  view.setUint8(0, ACK.kind);
  view.setBigUint64(1, BigInt(block), true);
  return view.buffer;
}

/** A message with its `kind`; null for one of a kind or version that this page doesn't know. */
export function decode(data) {
  if (typeof data === "string") return JSON.parse(data);
  const view = new DataView(data);
  if (data.byteLength < HEADER_BYTES || view.getUint16(0, false) !== 0x574c) return null;
  if (view.getUint8(2) !== VERSION || view.getUint8(3) !== BLOCK) return null;
  const payload = new Uint8Array(data, HEADER_BYTES, view.getUint32(44, true));
  const encoding = ENCODINGS[view.getUint8(38)] ?? "none";
  return {
    kind: "block",
    epoch: view.getUint32(4, true),
    block: integer(view, 8),
    number: integer(view, 16),
    frame: integer(view, 24),
    frames: view.getUint16(32, true),
    again: (view.getUint8(39) & 2) !== 0,
    stepMs: view.getFloat32(40, true),
    host: new TextDecoder().decode(new Uint8Array(data, 48, 16)).replace(/\0+$/, ""),
    shown: payload.byteLength === 0 ? null : encoding === "jpeg" ? pictures(payload) : payload,
  };
}

/** The JPEGs of a payload; those that fit, where lengths and bytes don't. */
function pictures(payload) {
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  const found = [];
  for (let at = 0; at + 4 <= payload.byteLength;) {
    const bytes = view.getUint32(at, true);
    if (bytes > payload.byteLength - at - 4) break;
    found.push(payload.subarray(at + 4, at + 4 + bytes));
    at += 4 + bytes;
  }
  return found;
}

function integer(view, at) {
  return Number(view.getBigUint64(at, true));
}
