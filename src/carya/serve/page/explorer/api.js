// Send requests to the server. Each channel has at most one pending request; a new request cancels the previous one.

const TOKEN_KEY = "carya-token";
const pending = new Map();

/** An error response, with the message from the server. */
export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const saveToken = (token) => sessionStorage.setItem(TOKEN_KEY, token);
export const hasToken = () => sessionStorage.getItem(TOKEN_KEY) !== null;

/** Return the response, or undefined if a newer request on the same channel canceled this one. Throws ApiError. */
export async function request(channel, path, { query = {}, body } = {}) {
  pending.get(channel)?.abort();
  const controller = new AbortController();
  pending.set(channel, controller);
  try {
    return await send(controller.signal, path, query, body);
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    throw error;
  } finally {
    if (pending.get(channel) === controller) pending.delete(channel);
  }
}

/** Cancel the pending request on a channel. */
export const cancel = (channel) => pending.get(channel)?.abort();

async function send(signal, path, query, body) {
  const parameters = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const url = parameters.length ? `${path}?${new URLSearchParams(parameters)}` : path;
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const token = sessionStorage.getItem(TOKEN_KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  for (let attempt = 0; ; attempt += 1) {
    let response;
    try {
      response = await fetch(url, {
        signal, headers, method: body === undefined ? "GET" : "POST", body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "The server is not responding.");
    }
    if (response.ok) return response.json();
    const isBusy = response.status === 429 || response.status === 503;
    if (isBusy && attempt < 3) {
      await pause(1000 * (Number(response.headers.get("Retry-After")) || 1), signal);
      continue;
    }
    const problem = await response.json().catch(() => ({}));
    throw new ApiError(response.status, problem.detail ?? response.statusText);
  }
}

const pause = (milliseconds, signal) => new Promise((resolve, reject) => {
  setTimeout(resolve, milliseconds);
  signal.addEventListener("abort", () => reject(new DOMException("canceled by a newer request", "AbortError")));
});
