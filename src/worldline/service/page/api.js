// HTTP verbs and the feed of changes. Every verb carries an idempotency key, so that a lost answer can be asked again.

import { askToken, credentials } from "./token.js";

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

export const cordon = (host, word) => verb("POST", `/v1/hosts/${encodeURIComponent(host)}/${word}`);
export const operate = (request) => verb("POST", "/v1/operations", request);
export const cancel = (operation) => verb("DELETE", `/v1/operations/${encodeURIComponent(operation)}`);

/** The names of the worlds that can be started. */
export async function worlds() {
  return (await ask("GET", "/v1/worlds")).worlds;
}

export const receiptUrl = (receipt) => `/v1/receipts/${encodeURIComponent(receipt)}`;
export const sessionPath = (session) => `/v1/sessions/${encodeURIComponent(session)}`;

/** With a ticket, since a browser can't show a token here. Throws an `ApiError`. */
export async function webSocketUrl(path) {
  const { ticket } = await ask("POST", "/v1/tickets");
  const url = new URL(path, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  url.searchParams.set("ticket", ticket);
  return url.href;
}

/** Saves what `url` answers as a file of this name. */
export async function save(url, name) {
  const file = new Blob([JSON.stringify(await ask("GET", url))], { type: "application/json" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), RETRY_MS);
}

/** Keeps `state` equal to what the controller tells, for as long as the page lives. */
export async function follow(state) {
  const again = () => {
    state.setConnected(false);
    setTimeout(() => follow(state), RETRY_MS);
  };
  let socket;
  try {
    socket = new WebSocket(await webSocketUrl("/v1/events"));
  } catch {
    return again();
  }
  socket.onmessage = (event) => {
    const told = JSON.parse(event.data);
    switch (told.type) {
      case "Snapshot":
        state.replace(told);
        ask("GET", "/v1/operations").then(({ operations }) => operations.forEach((one) => state.setOperation(one)));
        return state.setConnected(true);
      case "SessionChanged":
        return state.setSession(told.session);
      case "MoveChanged":
        return state.setMove(told.move);
      case "HostChanged":
        return state.setHost(told.host);
      case "OperationChanged":
        return state.setOperation(told.operation);
    }
  };
  socket.onclose = again;
}

function verb(method, path, body) {
  return ask(method, path, body, { "Content-Type": "application/json", "Idempotency-Key": key() });
}

/** Drawn by hand: `crypto.randomUUID` is missing where the page is reached by another name than localhost. */
function key() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((octet) => octet.toString(16).padStart(2, "0")).join("");
}

async function ask(method, path, body, headers = {}) {
  const request = { method, body: body === undefined ? undefined : JSON.stringify(body) };
  let response;
  for (;;) {
    const shown = credentials();
    try {
      response = await fetch(path, { ...request, headers: { ...headers, ...shown } });
    } catch {
      throw new ApiError("UNREACHABLE", "The service can't be reached. Sessions play on; try again.");
    }
    if (!response.headers.has("WWW-Authenticate")) break;
    if (shown.Authorization === credentials().Authorization) await askToken(shown.Authorization);
  }
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer;
  const { code = `HTTP ${response.status}`, sentence = response.statusText, facts } = answer?.error ?? {};
  throw new ApiError(code, sentence, facts);
}
