// HTTP verbs and the feed of changes. Every verb carries an idempotency key, so that a lost answer can be asked again.

const RETRY_MS = 1000;

/** What the service answered in place of what was asked: `code` as everywhere in Worldline, and a sentence. */
export class ApiError extends Error {
  constructor(code, sentence, facts = {}) {
    super(`${code}: ${sentence}`);
    this.code = code;
    this.sentence = sentence;
    this.facts = facts;
  }
}

export const open = (request) => verb("POST", "/v1/sessions", request);
export const move = (session, request) => verb("POST", `${sessionPath(session)}/move`, request);
export const park = (session) => verb("POST", `${sessionPath(session)}/park`, {});
export const resume = (session, request) => verb("POST", `${sessionPath(session)}/resume`, request);
export const close = (session) => verb("DELETE", sessionPath(session));

/** The names of the worlds that can be started. */
export async function worlds() {
  return (await ask("GET", "/v1/worlds")).worlds;
}

export const receiptUrl = (receipt) => `/v1/receipts/${encodeURIComponent(receipt)}`;
export const sessionPath = (session) => `/v1/sessions/${encodeURIComponent(session)}`;

export function webSocketUrl(path) {
  const url = new URL(path, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  return url.href;
}

/** Keeps `state` equal to what the controller tells, for as long as the page lives. */
export function follow(state) {
  const socket = new WebSocket(webSocketUrl("/v1/events"));
  socket.onmessage = (event) => {
    const told = JSON.parse(event.data);
    switch (told.type) {
      case "Snapshot":
        state.replace(told);
        return state.setConnected(true);
      case "SessionChanged":
        return state.setSession(told.session);
      case "MoveChanged":
        return state.setMove(told.move);
      case "HostChanged":
        return state.setHost(told.host);
    }
  };
  socket.onclose = () => {
    state.setConnected(false);
    setTimeout(() => follow(state), RETRY_MS);
  };
}

function verb(method, path, body) {
  return ask(method, path, body, { "Content-Type": "application/json", "Idempotency-Key": key() });
}

/** Drawn by hand: `crypto.randomUUID` is missing where the page is reached by another name than localhost. */
function key() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((octet) => octet.toString(16).padStart(2, "0")).join("");
}

async function ask(method, path, body, headers = {}) {
  const request = { method, headers, body: body === undefined ? undefined : JSON.stringify(body) };
  let response;
  try {
    response = await fetch(path, request);
  } catch {
    throw new ApiError("UNREACHABLE", "The service can't be reached. Sessions play on; try again.");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer;
  const { code = `HTTP ${response.status}`, sentence = response.statusText, facts } = answer?.error ?? {};
  throw new ApiError(code, sentence, facts);
}
