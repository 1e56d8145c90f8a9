// DRAFT
import { sessionPath, webSocketUrl } from "./api.js";

export function playUrl(session, after) {
  return webSocketUrl(`${sessionPath(session)}/play${after === null ? "" : `?after=${after}`}`);
}

export function encodeAct(number, action) {
  return JSON.stringify({ number, action });
}

export function decode(data) {
  if (typeof data === "string") return JSON.parse(data);
  const view = new DataView(data);
  const head = view.getUint32(0, true);
  const message = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, head)));
  const payload = new Uint8Array(data, 4 + head);
  if (message.encoding === "jpeg") message.pictures = split(payload);
  message.payload = payload;
  return message;
}

function split(payload) {
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  const pictures = [];
  for (let at = 0; at < payload.byteLength; ) {
    const nbytes = view.getUint32(at, true);
    pictures.push(payload.subarray(at + 4, at + 4 + nbytes));
    at += 4 + nbytes;
  }
  return pictures;
}
