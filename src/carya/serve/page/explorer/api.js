// Asking the server. Of each kind of question only the newest is waited for.

const TOKEN = "carya-token";
const running = new Map();

/** What the server refused, in its own words. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const keepToken = (token) => sessionStorage.setItem(TOKEN, token);

/** The answer, or undefined if a newer question of the same kind was asked meanwhile. Raises Refused. */
export async function ask(kind, path, { query = {}, body } = {}) {
  running.get(kind)?.abort();
  const stop = new AbortController();
  running.set(kind, stop);
  try {
    return await askUntil(stop.signal, path, query, body);
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    throw error;
  } finally {
    if (running.get(kind) === stop) running.delete(kind);
  }
}

/** Give up a question. */
export const forget = (kind) => running.get(kind)?.abort();

async function askUntil(signal, path, query, body) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const where = given.length ? `${path}?${new URLSearchParams(given)}` : path;
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  for (let turn = 0; ; turn += 1) {
    let answer;
    try {
      answer = await fetch(where, {
        signal, headers, method: body === undefined ? "GET" : "POST", body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused(0, "The server does not answer.");
    }
    if (answer.ok) return answer.json();
    const busy = answer.status === 429 || answer.status === 503;
    if (busy && turn < 3) {
      await pause(1000 * (Number(answer.headers.get("Retry-After")) || 1), signal);
      continue;
    }
    const said = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, said.detail ?? answer.statusText);
  }
}

const pause = (time, signal) => new Promise((done, fail) => {
  setTimeout(done, time);
  signal.addEventListener("abort", () => fail(new DOMException("a newer question", "AbortError")));
});
